/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts what kernels ask of memory: requests of warps, sectors, bank conflicts, bytes that must
 * come from DRAM. Kernels are compiled with -fsanitize=thread for its calls before every load and
 * store, as for races.cc, which this replaces.
 *
 * Requests. The emulation runs the lanes of a warp one after the other. So accesses are kept until
 * all living lanes of the warp meet (a shuffle, a matrix product, a barrier, the end). Then the
 * n-th access of each lane at one place in the code is one request of the warp. This is what a warp
 * does whose lanes run together. If lanes leave out an access within a loop, later ones are paired
 * with their neighbours; no kernel here does so.
 *
 * Instructions. An access is what the host's compiler makes of the source. It keeps 16-byte loads
 * whole (-fno-tree-sra) and may keep a load in a register that nvcc repeats, or the reverse.
 * Arithmetic is not counted.
 *
 * Capability 9.0. A bulk copy asks for each sector once for all blocks that get it, and writes a
 * wavefront for each 128 bytes in each of them. wgmma reads each matrix in shared memory once for
 * its four warps, at 128 bytes a wavefront: the layouts of its matrices have no conflicts.
 */
#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/cuda/kernels/device.cuh"

#include "counts.h"
#include "include/hopper_wgmma_emulated.h"
#include "races.h"

extern "C" char __data_start, _end; /* of the program: its static shared memory */

const char *const emulated_access_names[EMULATED_ACCESSES] = {
    "global load",  "global store", "global copy",  "shared load",
    "shared store", "shared copy",  "shared matrix"};

namespace {

using emulated::race_here;

/* ---- results ---- */

std::vector<emulated_counts> rows;
std::vector<emulated_site> sites; /* by number */
std::map<std::pair<int, const void *>, size_t> row_of;
emulated_counts *row; /* of the launch */
int label_now;
uint32_t launch_now; /* never 0 in a launch */

/* ---- sectors of global memory ---- */

enum { SECTOR = 32 };

struct sector {
    uint32_t loaded, stored; /* by this launch */
    uint32_t block;          /* the last that loaded it */
};

/* 16 MiB of memory. */
constexpr int CHUNK_BITS = 24;
constexpr size_t CHUNK_SECTORS = ((size_t)1 << CHUNK_BITS) / SECTOR;

sector &sector_at(uintptr_t address) {
    static std::unordered_map<uintptr_t, sector *> chunks;
    static uintptr_t last_key = ~(uintptr_t)0;
    static sector *last;
    const uintptr_t key = address >> CHUNK_BITS;
    if (key != last_key) {
        sector *&chunk = chunks[key];
        if (!chunk)
            chunk = static_cast<sector *>(mmap(nullptr, CHUNK_SECTORS * sizeof(sector),
                                               PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        if (chunk == MAP_FAILED)
            abort();
        last_key = key;
        last = chunk;
    }
    return last[address / SECTOR % CHUNK_SECTORS];
}

/* block: counted through the program. */
void touch(uintptr_t address, emulated_access access, uint32_t block) {
    sector &s = sector_at(address);
    if (access == EMULATED_GLOBAL_STORE) {
        row->sum.l2_store_bytes += SECTOR;
        row->sum.dram_store_bytes += s.stored != launch_now ? SECTOR : 0;
        s.stored = launch_now;
        return;
    }
    if (access == EMULATED_GLOBAL_COPY || s.block != block)
        row->sum.l2_load_bytes += SECTOR;
    if (access == EMULATED_GLOBAL_LOAD)
        s.block = block;
    if (s.loaded != launch_now && s.stored != launch_now)
        row->sum.dram_load_bytes += SECTOR;
    s.loaded = launch_now;
}

/* ---- requests ---- */

struct request {
    uint32_t lanes;
    uintptr_t at[32];
};

/* Accesses of a warp at one site that have not been counted yet. */
struct pending {
    uint8_t bytes;
    uint16_t done[32]; /* of each lane */
    size_t used;
    std::vector<request> requests;
};
struct warp_pending {
    std::vector<pending> at; /* by site */
    std::vector<int> used;   /* sites */
};
constexpr int WARPS = 8 * 32; /* of a cluster */
warp_pending warps[WARPS];
int warp_of_cluster(int thread) {
    return race_here.rank * ((race_here.threads + 31) / 32) + thread / 32;
}

emulated_traffic sectors_of(const request &r, int bytes, emulated_access access, uint32_t block) {
    uintptr_t seen[64];
    int n = 0, lanes = 0;
    for (int l = 0; l < 32; l++) {
        if (!(r.lanes >> l & 1))
            continue;
        lanes++;
        const uintptr_t end = (r.at[l] + (uintptr_t)bytes - 1) / SECTOR;
        for (uintptr_t s = r.at[l] / SECTOR; s <= end; s++) {
            int k = n - 1;
            while (k >= 0 && seen[k] != s)
                k--;
            if (k < 0)
                seen[n++] = s;
        }
    }
    for (int k = 0; k < n; k++)
        touch(seen[k] * SECTOR, access, block);
    return emulated_traffic{1, (uint64_t)n,
                            std::min<uint64_t>(n, ((unsigned)(lanes * bytes) + 31) / 32)};
}

/* Wavefronts of lanes [first, end): the most different words of a bank. */
unsigned phase_wavefronts(const request &r, int bytes, int first, int end) {
    uintptr_t word[32][32];
    unsigned count[32] = {}, most = 0;
    for (int l = first; l < end; l++) {
        if (!(r.lanes >> l & 1))
            continue;
        for (uintptr_t w = r.at[l] / 4; w <= (r.at[l] + (uintptr_t)bytes - 1) / 4; w++) {
            const unsigned bank = w % 32;
            unsigned k = 0;
            while (k < count[bank] && word[bank][k] != w)
                k++;
            if (k == count[bank])
                word[bank][count[bank]++] = w;
            most = std::max(most, count[bank]);
        }
    }
    return most;
}
emulated_traffic wavefronts_of(const request &r, int bytes) {
    const int lanes = bytes <= 4 ? 32 : bytes <= 8 ? 16 : 8;
    emulated_traffic t = {1, 0, 0};
    for (int first = 0; first < 32; first += lanes) {
        const unsigned n = phase_wavefronts(r, bytes, first, first + lanes);
        t.units += n;
        t.least += n > 0;
    }
    return t;
}

void add(emulated_traffic &to, const emulated_traffic &t) {
    to.requests += t.requests;
    to.units += t.units;
    to.least += t.least;
}

void flush(int warp) {
    warp_pending &w = warps[warp];
    const uint32_t block =
        race_here.first_block + (uint32_t)(warp / ((race_here.threads + 31) / 32));
    for (const int site : w.used) {
        pending &p = w.at[(size_t)site];
        emulated_site &s = sites[(size_t)site];
        for (size_t i = 0; i < p.used; i++) {
            const request &r = p.requests[i];
            const emulated_traffic t = s.access < EMULATED_SHARED_LOAD
                                           ? sectors_of(r, p.bytes, s.access, block)
                                           : wavefronts_of(r, p.bytes);
            add(s.traffic, t);
            add(row->sum.of[s.access], t);
        }
        p.used = 0;
        memset(p.done, 0, sizeof p.done);
    }
    w.used.clear();
}

int site_number(const void *code, emulated_access access) {
    static std::unordered_map<uintptr_t, int> numbers;
    static struct {
        uintptr_t key;
        int number;
    } recent[4096];
    const uintptr_t key = (uintptr_t)code * EMULATED_ACCESSES + access;
    auto &hit = recent[key % 4096];
    if (hit.key == key)
        return hit.number;
    const auto at = numbers.emplace(key, (int)sites.size());
    if (at.second)
        sites.push_back({code, row->kernel, access, {}});
    hit = {key, at.first->second};
    return hit.number;
}

void record(const void *p, size_t bytes, emulated_access access, const void *code) {
    const int site = site_number(code, access);
    warp_pending &w = warps[warp_of_cluster(race_here.thread)];
    const int lane = race_here.thread % 32;
    if (w.at.size() <= (size_t)site)
        w.at.resize((size_t)site + 64);
    pending &a = w.at[(size_t)site];
    if (!a.used)
        w.used.push_back(site);
    a.bytes = (uint8_t)bytes;
    const size_t i = a.done[lane]++;
    if (i == a.used) {
        if (i == a.requests.size())
            a.requests.emplace_back();
        a.requests[i].lanes = 0;
        a.used++;
    }
    a.requests[i].lanes |= 1u << lane;
    a.requests[i].at[lane] = (uintptr_t)p;
}

/* ---- spaces ---- */

/* The scheduler's variables, which kernels read as threadIdx and the like. */
bool is_scheduler(const void *p) {
    const auto within = [p](const auto &v) {
        return p >= (const void *)&v && p < (const void *)(&v + 1);
    };
    return within(emulated::now) || within(emulated::now_block) || within(emulated::mma_truncates);
}
bool is_shared(const void *p) {
    const unsigned char *c = static_cast<const unsigned char *>(p);
    for (int r = 0; r < race_here.blocks; r++)
        if (c >= race_here.shared[r] && c < race_here.shared[r] + race_here.shared_bytes)
            return true;
    return p >= &__data_start && p < &_end && !is_scheduler(p);
}
bool is_global(const void *p) {
    static struct {
        const void *from, *end;
        uint32_t launch;
    } last[2]; /* the last that was not in a device's memory, and the last that was */
    for (int device = 0; device < 2; device++)
        if (last[device].launch == launch_now && p >= last[device].from && p < last[device].end)
            return device;
    const void *from, *end;
    const bool device = emulated::device_range(p, &from, &end);
    last[device] = {from, end, launch_now};
    return device;
}

/* Kernel parameters and local variables are in neither space. */
void access(const void *p, size_t bytes, bool stores, const void *code) {
    const char *c = static_cast<const char *>(p);
    if (!race_here.on || !row || (c >= race_here.stack && c < race_here.stack_end))
        return;
    if (is_shared(p))
        record(p, bytes, stores ? EMULATED_SHARED_STORE : EMULATED_SHARED_LOAD, code);
    else if (is_global(p))
        record(p, bytes, stores ? EMULATED_GLOBAL_STORE : EMULATED_GLOBAL_LOAD, code);
}

/* ---- capability 9.0 ---- */

/* Bytes at neighbouring addresses, of which several calls tell: whole wavefronts and sectors. */
struct stream {
    emulated_access access;
    uint64_t bytes; /* of a wavefront that is not full */
    uintptr_t last; /* sector */

    void shared(size_t n) {
        bytes += n;
        row->sum.of[access].units += bytes / 128;
        row->sum.of[access].least += bytes / 128;
        bytes %= 128;
    }
    void global(const void *p, size_t n) {
        for (uintptr_t s = (uintptr_t)p / SECTOR; s <= ((uintptr_t)p + n - 1) / SECTOR; s++) {
            if (s == last)
                continue;
            last = s;
            row->sum.of[access].units++;
            row->sum.of[access].least++;
            touch(s * SECTOR, access, race_here.block);
        }
    }
};
stream bulk_from = {EMULATED_GLOBAL_COPY, 0, 0}, bulk_to = {EMULATED_SHARED_COPY, 0, 0},
       store_from = {EMULATED_SHARED_LOAD, 0, 0}, store_to = {EMULATED_GLOBAL_STORE, 0, 0};

/* A warp's part: first of the four, which reads the matrices for all. */
void count_wgmma(const emulated::wgmma_call &call, bool first) {
    row->sum.wgmma += (uint64_t)call.n / 8;
    if (!first)
        return;
    const uint64_t wavefronts =
        (uint64_t)(call.n * 16 * 2 + (call.a_registers ? 0 : 64 * 16 * 2)) / 128;
    add(row->sum.of[EMULATED_SHARED_MATRIX], emulated_traffic{1, wavefronts, wavefronts});
}

/* ---- samples of blocks ---- */

struct sampler {
    bool on;
    int side;              /* the longest of the grid */
    unsigned places, from; /* clusters along it; the first of the two that run. 0: all run */
    unsigned cluster;      /* blocks of a place */
    emulated_sums before, one;

    int begin(const emulated_grid &g) {
        const unsigned *const n = g.size;
        side = n[0] >= n[1] && n[0] >= n[2] ? 0 : n[1] >= n[2] ? 1 : 2;
        cluster = g.cluster[side];
        places = on && n[side] / cluster > 2 ? n[side] / cluster : 0;
        from = (places - 1) / 2;
        before = row->sum;
        return places ? 2 : 1;
    }
    bool runs(int pass, const unsigned at[3]) {
        if (pass == 1 && !started) {
            one = row->sum;
            started = true;
        }
        return !places || at[side] / cluster == from + (unsigned)pass;
    }
    void end() {
        started = false;
        if (!places)
            return;
        const uint64_t dram_load = row->sum.dram_load_bytes, dram_store = row->sum.dram_store_bytes;
        uint64_t *const to = reinterpret_cast<uint64_t *>(&row->sum);
        const uint64_t *const was = reinterpret_cast<const uint64_t *>(&before);
        for (size_t i = 0; i < sizeof(emulated_sums) / sizeof *to; i++)
            to[i] = was[i] + (to[i] - was[i]) * places / 2;
        row->sum.dram_load_bytes =
            one.dram_load_bytes + (dram_load - one.dram_load_bytes) * (places - 1);
        row->sum.dram_store_bytes =
            one.dram_store_bytes + (dram_store - one.dram_store_bytes) * (places - 1);
    }

  private:
    bool started;
};
sampler sample;

/* ---- names ---- */

std::map<const void *, std::string> read_names() {
    std::map<const void *, std::string> names;
    Dl_info info;
    FILE *f = fopen("/proc/self/exe", "rb");
    if (!f || !dladdr((void *)read_names, &info))
        return names;
    std::vector<char> file;
    char buf[65536];
    for (size_t n; (n = fread(buf, 1, sizeof buf, f)) > 0;)
        file.insert(file.end(), buf, buf + n);
    fclose(f);
    const ElfW(Ehdr) *head = reinterpret_cast<const ElfW(Ehdr) *>(file.data());
    const ElfW(Shdr) *section = reinterpret_cast<const ElfW(Shdr) *>(file.data() + head->e_shoff);
    for (int i = 0; i < head->e_shnum; i++) {
        if (section[i].sh_type != SHT_SYMTAB)
            continue;
        const char *text = file.data() + section[section[i].sh_link].sh_offset;
        const ElfW(Sym) *symbol =
            reinterpret_cast<const ElfW(Sym) *>(file.data() + section[i].sh_offset);
        for (size_t k = 0; k < section[i].sh_size / sizeof *symbol; k++)
            if (ELF64_ST_TYPE(symbol[k].st_info) == STT_FUNC && symbol[k].st_value)
                names[(head->e_type == ET_DYN ? static_cast<char *>(info.dli_fbase) : nullptr) +
                      symbol[k].st_value] = text + symbol[k].st_name;
    }
    return names;
}

} // namespace

extern "C" {

void emulated_counts_label(int label) { label_now = label; }
void emulated_counts_sample(int on) { sample.on = on != 0; }
const emulated_counts *emulated_counts_all(size_t *count_out) {
    *count_out = rows.size();
    return rows.data();
}
const emulated_site *emulated_counts_sites(size_t *count_out) {
    *count_out = sites.size();
    return sites.data();
}
void emulated_counts_clear(void) {
    rows.clear();
    row_of.clear();
    row = nullptr;
    for (emulated_site &s : sites)
        s.traffic = emulated_traffic{};
}

const char *emulated_kernel_name(const void *kernel) {
    static const std::map<const void *, std::string> names = read_names();
    static std::string text;
    const auto at = names.find(kernel);
    if (at == names.end())
        return "?";
    int status = 0;
    char *plain = abi::__cxa_demangle(at->second.c_str(), nullptr, nullptr, &status);
    text = plain ? plain : at->second;
    free(plain);
    static const std::string unnamed = "(anonymous namespace)::";
    for (size_t k; (k = text.find(unnamed)) != std::string::npos;)
        text.erase(k, unnamed.size());
    /* "void name<T, 64>(type)", or without a template "name(type)". */
    text.erase(std::min(text.size(), text.rfind('(')));
    if (text.compare(0, 5, "void ") == 0)
        text.erase(0, 5);
    return text.c_str();
}

/* ---- from fibers.cc ---- */

int emulated_count_launch(const emulated_grid *grid) {
    launch_now++;
    const auto at = row_of.emplace(std::make_pair(label_now, grid->kernel), rows.size());
    if (at.second) {
        rows.emplace_back();
        rows.back().label = label_now;
        rows.back().kernel = grid->kernel;
    }
    row = &rows[at.first->second];
    row->launches++;
    row->blocks += (uint64_t)grid->size[0] * grid->size[1] * grid->size[2];
    row->threads = std::max(row->threads, grid->threads);
    row->shared_bytes = std::max(row->shared_bytes, grid->shared_bytes);
    return sample.begin(*grid);
}
int emulated_count_block(int pass, const unsigned at[3]) { return sample.runs(pass, at); }
void emulated_count_launch_end(void) { sample.end(); }

void emulated_count_barrier(void) {
    row->sum.barriers++;
    for (int w = 0; w < WARPS; w++)
        flush(w);
}
void emulated_count_block_end(void) {
    for (int w = 0; w < WARPS; w++)
        flush(w);
}

void emulated_count_warp(int warp, int kind, int arg, const void *const in[32], unsigned here,
                         int whole) {
    (void)here;
    if (whole)
        flush(warp);
    switch (kind) {
    case EMULATED_SYNC: row->sum.warp_syncs++; return;
    case EMULATED_SHUFFLE: row->sum.shuffles++; return;
    case EMULATED_BALLOT: return;
    default: break;
    }
    if (arg >> 12) {
        if (arg >> 12 == 1)
            count_wgmma(*static_cast<const emulated::wgmma_call *>(in[0]), warp % 4 == 0);
        return;
    }
    if (arg == 16) {
        row->sum.mma++;
        return;
    }
    emulated_traffic t = {1, 0, 0};
    for (int m = 0; m < (arg & 7); m++) {
        request r = {0xff, {}};
        for (int k = 0; k < 8; k++)
            r.at[k] = (uintptr_t) * static_cast<const void *const *>(in[8 * m + k]);
        t.units += phase_wavefronts(r, 16, 0, 8);
        t.least++;
    }
    add(row->sum.of[EMULATED_SHARED_MATRIX], t);
}

void emulated_race_copy(const void *to, const void *from, size_t bytes, bool on) {
    if (!row)
        return;
    if (on)
        record(from, bytes, EMULATED_GLOBAL_COPY, race_here.code);
    record(to, bytes, EMULATED_SHARED_COPY, race_here.code);
}
void emulated_count_bulk_load(const void *from, size_t bytes) { bulk_from.global(from, bytes); }
void emulated_race_async_write(const void *, size_t bytes, const void *) { bulk_to.shared(bytes); }
/* A bulk store, and wgmma with its place in the code, which is counted by its warp. */
void emulated_race_async_read(const void *, size_t bytes, const void *at) {
    if (!at)
        store_from.shared(bytes);
}
void emulated_race_write(const void *p, size_t bytes) { store_to.global(p, bytes); }
void emulated_race_atomic(const void *p, bool) {
    (is_shared(p) ? row->sum.shared_atomics : row->sum.global_atomics)++;
}

/* What -fsanitize=thread calls. */
void __tsan_init(void) {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void) {}
#define COUNT_ACCESS(name, bytes)                                                                  \
    void __tsan_##name##read##bytes(void *p) {                                                     \
        access(p, bytes, false, __builtin_return_address(0));                                      \
    }                                                                                              \
    void __tsan_##name##write##bytes(void *p) {                                                    \
        access(p, bytes, true, __builtin_return_address(0));                                       \
    }
#define COUNT_ACCESSES(bytes)                                                                      \
    COUNT_ACCESS(, bytes) COUNT_ACCESS(unaligned_, bytes) COUNT_ACCESS(volatile_, bytes)
COUNT_ACCESSES(1)
COUNT_ACCESSES(2)
COUNT_ACCESSES(4)
COUNT_ACCESSES(8)
COUNT_ACCESSES(16)
void __tsan_read_range(void *p, size_t n) { access(p, n, false, __builtin_return_address(0)); }
void __tsan_write_range(void *p, size_t n) { access(p, n, true, __builtin_return_address(0)); }
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}

} /* extern "C" */
