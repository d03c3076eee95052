/* SPDX-License-Identifier: Apache-2.0
 *
 * What the sanitizers need to know about HDF5 1.10 in a target whose HDF5 files are damaged. Only
 * the one source file of such a target includes it.
 */
#ifndef CHEX_TESTS_FUZZ_HDF5_OPTIONS_H
#define CHEX_TESTS_FUZZ_HDF5_OPTIONS_H

/* The runtime of the sanitizer looks these up, from a shared library too. */
#define FUZZ_VISIBLE __attribute__((visibility("default")))

/* HDF5 forgets a few hundred bytes on some of its error paths. What chexnet forgets to close shows
 * in H5Fget_obj_count(). */
FUZZ_VISIBLE const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libhdf5"; }

/* HDF5 passes sizes that a damaged file states to malloc() and reports an error where it returns
 * NULL; the sanitizer would end the process instead. From 2 GiB on malloc() returns NULL here. A
 * target checks that no status says "out of memory": that request would be chexnet's own. */
FUZZ_VISIBLE const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "allocator_may_return_null=1:max_allocation_size_mb=2047";
}

/* With damaged bytes HDF5 reads past its own buffers, for example in the name of an attribute that
 * has no end. It is not compiled with the sanitizer, which sees it in strdup() and memcpy() only.
 */
FUZZ_VISIBLE const char *__asan_default_suppressions(void);
const char *__asan_default_suppressions(void) { return "interceptor_via_lib:libhdf5"; }

#endif
