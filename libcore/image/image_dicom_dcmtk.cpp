/* SPDX-License-Identifier: Apache-2.0
 *
 * The module chexnet-dicom.so: decodes DICOM files with DCMTK, and JPEG 2000 in them with OpenJPEG.
 *
 * Both only parse and decompress. The conversion of stored values to grey (image.h) is computed
 * here, as one table with an entry for each stored value. So the pixels do not depend on their
 * versions.
 */
#include <dcmtk/config/osconfig.h>

#include <dcmtk/dcmdata/dcdatset.h>
#include <dcmtk/dcmdata/dcdeftag.h>
#include <dcmtk/dcmdata/dcdict.h>
#include <dcmtk/dcmdata/dcfilefo.h>
#include <dcmtk/dcmdata/dcistrmb.h>
#include <dcmtk/dcmdata/dcitem.h>
#include <dcmtk/dcmdata/dcmetinf.h>
#include <dcmtk/dcmdata/dcpixel.h>
#include <dcmtk/dcmdata/dcpixseq.h>
#include <dcmtk/dcmdata/dcpxitem.h>
#include <dcmtk/dcmdata/dcrledrg.h>
#include <dcmtk/dcmdata/dcsequen.h>
#include <dcmtk/dcmdata/dcxfer.h>
#include <dcmtk/dcmjpeg/djdecode.h>
#include <dcmtk/dcmjpls/djdecode.h>
#include <dcmtk/oflog/oflog.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <vector>

extern "C" {
#include "base/module.h"
#include "image/image_dicom_j2k.h"
#include "image/image_format.h"
}

namespace {

enum { MAX_STORED_BITS = 16 };

enum voi_function { LINEAR, LINEAR_EXACT, SIGMOID, LOOKUP, MIN_MAX };

struct frame {
    int width, height;
    unsigned allocated, stored, shift; // bits; shift: position of the lowest stored bit
    bool is_signed, inverted;
    double slope, intercept;
    voi_function function;
    double center, width_voi;  // MIN_MAX: smallest and largest value of the frame
    std::vector<uint16_t> lut; // LOOKUP: the entries, of 0 to lut_most
    int lut_first;             // value of the first entry
    unsigned lut_most;
    const Uint8 *bytes; // one of the two
    const Uint16 *words;
};

struct file {
    const char *name;
    DcmDataset *dataset;
    struct chex_error *err;
};

/* One for each process. DCMTK's log is off, because its functions return every error as a
 * condition. */
struct decoders {
    decoders() {
        OFLog::configure(OFLogger::OFF_LOG_LEVEL);
        DJDecoderRegistration::registerCodecs();
        DJLSDecoderRegistration::registerCodecs();
        DcmRLEDecoderRegistration::registerCodecs();
    }
    ~decoders() {
        DcmRLEDecoderRegistration::cleanup();
        DJLSDecoderRegistration::cleanup();
        DJDecoderRegistration::cleanup();
    }
};

enum chex_status failed(const file &f, const char *what, const OFCondition &why) {
    return chex_error_set(f.err, CHEX_E_DATA, "%s: DCMTK: %s: %s", f.name, what, why.text());
}

enum chex_status get_number(const file &f, const DcmTagKey &tag, const char *what, unsigned min,
                            unsigned max, unsigned *out) {
    Uint16 v = 0;
    OFCondition c = f.dataset->findAndGetUint16(tag, v);
    if (c.bad())
        return failed(f, what, c);
    if (v < min || v > max)
        return chex_error_set(f.err, CHEX_E_DATA, "%s: %s is %u, expected %u to %u", f.name, what,
                              v, min, max);
    *out = v;
    return CHEX_OK;
}

/* Reads a decimal. If the file does not have it, `out` is unchanged. */
enum chex_status get_decimal(const file &f, const DcmTagKey &tag, const char *what, double *out) {
    Float64 v = 0;
    if (!f.dataset->tagExistsWithValue(tag))
        return CHEX_OK;
    OFCondition c = f.dataset->findAndGetFloat64(tag, v);
    if (c.bad())
        return failed(f, what, c);
    if (!std::isfinite(v))
        return chex_error_set(f.err, CHEX_E_DATA, "%s: %s is not a finite number", f.name, what);
    *out = v;
    return CHEX_OK;
}

enum chex_status get_layout(const file &f, frame *p) {
    OFString kind;
    unsigned v = 0, height = 0, width = 0, high = 0;
    CHEX_TRY(get_number(f, DCM_SamplesPerPixel, "SamplesPerPixel", 1, 1, &v));
    f.dataset->findAndGetOFString(DCM_PhotometricInterpretation, kind);
    if (kind != "MONOCHROME1" && kind != "MONOCHROME2")
        return chex_error_set(f.err, CHEX_E_DATA,
                              "%s: PhotometricInterpretation is '%.16s', expected MONOCHROME1 or "
                              "MONOCHROME2",
                              f.name, kind.c_str());
    p->inverted = kind == "MONOCHROME1";
    CHEX_TRY(get_number(f, DCM_Rows, "Rows", 1, 65535, &height));
    CHEX_TRY(get_number(f, DCM_Columns, "Columns", 1, 65535, &width));
    CHEX_TRY(get_number(f, DCM_BitsAllocated, "BitsAllocated", 8, 16, &p->allocated));
    if (p->allocated != 8 && p->allocated != 16)
        return chex_error_set(f.err, CHEX_E_DATA, "%s: BitsAllocated is %u, expected 8 or 16",
                              f.name, p->allocated);
    CHEX_TRY(get_number(f, DCM_BitsStored, "BitsStored", 2, p->allocated, &p->stored));
    CHEX_TRY(get_number(f, DCM_HighBit, "HighBit", p->stored - 1, p->allocated - 1, &high));
    CHEX_TRY(get_number(f, DCM_PixelRepresentation, "PixelRepresentation", 0, 1, &v));
    p->width = (int)width;
    p->height = (int)height;
    p->shift = high + 1 - p->stored;
    p->is_signed = v == 1;
    return CHEX_OK;
}

/* The smallest value that the rescaling can give. */
double least_value(const frame &p) {
    const double low = p.is_signed ? -std::ldexp(1, (int)p.stored - 1) : 0;
    const double high = std::ldexp(1, (int)(p.is_signed ? p.stored - 1 : p.stored)) - 1;
    return std::min(low * p.slope, high * p.slope) + p.intercept;
}

/* Reads the entries of a VOI LUT. Entries of 8 bits may fill 16 bits each, or lie two in a word,
 * the first in the lower byte. */
enum chex_status get_lut_entries(const file &f, DcmItem *item, size_t count, unsigned bits,
                                 std::vector<uint16_t> *out) {
    DcmElement *element = NULL;
    Uint16 *words = NULL;
    OFCondition c = item->findAndGetElement(DCM_LUTData, element);
    if (c.good())
        c = element->getUint16Array(words);
    if (c.bad() || !words)
        return failed(f, "LUTData of the VOI LUT", c);
    const size_t length = element->getLength();
    const bool packed = bits == 8 && length == count + count % 2;
    if (!packed && length != 2 * count)
        return chex_error_set(
            f.err, CHEX_E_DATA,
            "%s: LUTData of the VOI LUT has %zu bytes, expected %zu entries of %u "
            "bits",
            f.name, length, count, bits);
    out->resize(count);
    for (size_t i = 0; i < count; i++)
        (*out)[i] = packed ? (uint16_t)(words[i / 2] >> i % 2 * 8 & 255) : words[i];
    return CHEX_OK;
}

/* Reads the first item of the VOI LUT Sequence, by DICOM PS3.3 C.11.2.1.1. *found_out: there is
 * one. The first value is signed if the file says so, or if values can be negative. */
enum chex_status get_lut(const file &f, frame *p, bool *found_out) {
    DcmItem *item = NULL;
    DcmElement *element = NULL;
    Uint16 v[3] = {0, 0, 0};
    *found_out = f.dataset->findAndGetSequenceItem(DCM_VOILUTSequence, item, 0).good() && item;
    if (!*found_out)
        return CHEX_OK;
    OFCondition c = item->findAndGetElement(DCM_LUTDescriptor, element);
    const bool is_signed = c.good() && element->getVR() == EVR_SS;
    for (unsigned i = 0; c.good() && i < 3; i++) {
        Sint16 s = 0;
        c = is_signed ? element->getSint16(s, i) : element->getUint16(v[i], i);
        v[i] = is_signed ? (Uint16)s : v[i];
    }
    if (c.bad())
        return failed(f, "LUTDescriptor of the VOI LUT", c);
    if (v[2] < 8 || v[2] > 16)
        return chex_error_set(f.err, CHEX_E_DATA, "%s: the VOI LUT has %u bits, expected 8 to 16",
                              f.name, v[2]);
    p->function = LOOKUP;
    p->lut_first = is_signed || least_value(*p) < 0 ? (int)(Sint16)v[1] : (int)v[1];
    p->lut_most = (1u << v[2]) - 1;
    return get_lut_entries(f, item, v[0] ? v[0] : 65536, v[2], &p->lut);
}

enum chex_status get_meaning(const file &f, frame *p) {
    OFString function;
    if (f.dataset->tagExists(DCM_ModalityLUTSequence))
        return chex_error_set(f.err, CHEX_E_DATA,
                              "%s: has a modality LUT, expected rescale slope and intercept",
                              f.name);
    p->slope = 1;
    CHEX_TRY(get_decimal(f, DCM_RescaleSlope, "RescaleSlope", &p->slope));
    CHEX_TRY(get_decimal(f, DCM_RescaleIntercept, "RescaleIntercept", &p->intercept));
    if (p->slope == 0)
        return chex_error_set(f.err, CHEX_E_DATA, "%s: RescaleSlope is 0", f.name);
    bool found = false;
    CHEX_TRY(get_lut(f, p, &found));
    if (found)
        return CHEX_OK;
    p->function = MIN_MAX;
    if (!f.dataset->tagExistsWithValue(DCM_WindowCenter) ||
        !f.dataset->tagExistsWithValue(DCM_WindowWidth))
        return CHEX_OK;
    CHEX_TRY(get_decimal(f, DCM_WindowCenter, "WindowCenter", &p->center));
    CHEX_TRY(get_decimal(f, DCM_WindowWidth, "WindowWidth", &p->width_voi));
    f.dataset->findAndGetOFString(DCM_VOILUTFunction, function);
    if (function.empty() || function == "LINEAR")
        p->function = LINEAR;
    else if (function == "LINEAR_EXACT")
        p->function = LINEAR_EXACT;
    else if (function == "SIGMOID")
        p->function = SIGMOID;
    else
        return chex_error_set(f.err, CHEX_E_DATA,
                              "%s: VOILUTFunction is '%.16s', expected LINEAR, LINEAR_EXACT or "
                              "SIGMOID",
                              f.name, function.c_str());
    if (p->function == LINEAR ? p->width_voi < 1 : p->width_voi <= 0)
        return chex_error_set(f.err, CHEX_E_DATA, "%s: WindowWidth is %g, expected %s", f.name,
                              p->width_voi, p->function == LINEAR ? "1 or more" : "more than 0");
    return CHEX_OK;
}

/* Checks sizes and number of frames before decompression, because DCMTK decodes all frames at once.
 */
enum chex_status check_size(const file &f, const frame &p, size_t file_bytes) {
    Sint32 frames = 1;
    uint64_t pixels = (uint64_t)p.width * (uint64_t)p.height;
    if (f.dataset->tagExistsWithValue(DCM_NumberOfFrames) &&
        (f.dataset->findAndGetSint32(DCM_NumberOfFrames, frames).bad() || frames < 1))
        return chex_error_set(f.err, CHEX_E_DATA, "%s: NumberOfFrames is not a number from 1",
                              f.name);
    CHEX_TRY(chex_image_check_size(f.name, (uint64_t)p.width, (uint64_t)p.height, p.allocated,
                                   file_bytes, f.err));
    if ((uint64_t)frames > CHEX_IMAGE_MAX_PIXELS / pixels)
        return chex_error_set(f.err, CHEX_E_DATA,
                              "%s: %d frames of %d x %d pixels, the limit is %d pixels in all",
                              f.name, (int)frames, p.width, p.height, CHEX_IMAGE_MAX_PIXELS);
    return CHEX_OK;
}

#if CHEXNET_HAVE_OPENJPEG
/* Joins the fragments of the first frame: all of a single frame, one of several frames. */
enum chex_status get_codestream(const file &f, std::vector<uint8_t> *out) {
    DcmElement *element = NULL;
    DcmPixelSequence *fragments = NULL;
    const DcmXfer syntax(f.dataset->getOriginalXfer());
    Sint32 frames = 1;
    f.dataset->findAndGetSint32(DCM_NumberOfFrames, frames);
    OFCondition c = f.dataset->findAndGetElement(DCM_PixelData, element);
    if (c.good()) {
        DcmPixelData *data = dynamic_cast<DcmPixelData *>(element);
        c = data ? data->getEncapsulatedRepresentation(syntax.getXfer(), NULL, fragments)
                 : EC_InvalidTag;
    }
    if (c.bad() || !fragments)
        return failed(f, "PixelData", c);
    const unsigned long items = fragments->card(); // the first one is the table of offsets
    if (frames > 1 && items != (unsigned long)frames + 1)
        return chex_error_set(f.err, CHEX_E_DATA,
                              "%s: %d frames of JPEG 2000 in %lu fragments, expected a fragment "
                              "for each frame",
                              f.name, (int)frames, items ? items - 1 : 0);
    for (unsigned long i = 1; i < (frames > 1 ? 2 : items); i++) {
        DcmPixelItem *item = NULL;
        Uint8 *bytes = NULL;
        c = fragments->getItem(item, i);
        if (c.good())
            c = item->getUint8Array(bytes);
        if (c.bad())
            return failed(f, "PixelData", c);
        if (bytes)
            out->insert(out->end(), bytes, bytes + item->getLength());
    }
    return CHEX_OK;
}

enum chex_status get_jpeg2000(const file &f, frame *p, std::vector<uint16_t> *samples) {
    std::vector<uint8_t> stream;
    const struct chex_j2k_frame expected = {p->width, p->height, p->stored, p->is_signed};
    CHEX_TRY(get_codestream(f, &stream));
    samples->resize((size_t)p->width * (size_t)p->height);
    CHEX_TRY(
        chex_j2k_decode(stream.data(), stream.size(), f.name, &expected, samples->data(), f.err));
    p->shift = 0;
    p->words = samples->data();
    return CHEX_OK;
}
#else
enum chex_status get_jpeg2000(const file &f, frame *, std::vector<uint16_t> *) {
    return chex_error_set(f.err, CHEX_E_ENV,
                          "%s is DICOM in JPEG 2000: build chexnet with OpenJPEG "
                          "(libopenjp2-7-dev, -DCHEX_WITH_OPENJPEG=ON), or convert the files "
                          "first, such as by gdcmconv --raw",
                          f.name);
}
#endif

bool is_jpeg2000(const file &f) {
    const E_TransferSyntax syntax = f.dataset->getOriginalXfer();
    return syntax == EXS_JPEG2000LosslessOnly || syntax == EXS_JPEG2000;
}

/* samples: memory for the values of a frame that DCMTK does not decompress. */
enum chex_status get_pixels(const file &f, frame *p, std::vector<uint16_t> *samples) {
    if (is_jpeg2000(f))
        return get_jpeg2000(f, p, samples);
    size_t pixels = (size_t)p->width * (size_t)p->height;
    unsigned long count = 0;
    DcmXfer syntax(f.dataset->getOriginalXfer());
    OFCondition c = f.dataset->chooseRepresentation(EXS_LittleEndianExplicit, NULL);
    if (c == EC_CannotChangeRepresentation)
        return chex_error_set(f.err, CHEX_E_DATA,
                              "%s: transfer syntax %s, which DCMTK does not decompress: convert "
                              "the files first, such as by gdcmconv --raw",
                              f.name, syntax.getXferName());
    if (c.bad())
        return chex_error_set(f.err, CHEX_E_DATA, "%s: DCMTK: transfer syntax %s: %s", f.name,
                              syntax.getXferName(), c.text());
    // Decompression may have changed the layout (8-bit JPEG in 16 allocated bits).
    CHEX_TRY(get_layout(f, p));
    c = p->allocated == 8 ? f.dataset->findAndGetUint8Array(DCM_PixelData, p->bytes, &count)
                          : f.dataset->findAndGetUint16Array(DCM_PixelData, p->words, &count);
    if (c.bad())
        return failed(f, "PixelData", c);
    if (count < pixels)
        return chex_error_set(f.err, CHEX_E_DATA, "%s: PixelData has %lu values, expected %d x %d",
                              f.name, count, p->width, p->height);
    return CHEX_OK;
}

unsigned stored_at(const frame &p, size_t i) {
    unsigned raw = p.bytes ? p.bytes[i] : p.words[i];
    return raw >> p.shift & ((1u << p.stored) - 1);
}

double value_of(const frame &p, unsigned stored) {
    int v = (int)stored;
    if (p.is_signed && (stored >> (p.stored - 1) & 1))
        v -= 1 << p.stored;
    return v * p.slope + p.intercept;
}

void find_range(frame *p) {
    double lowest = INFINITY, greatest = -INFINITY;
    for (size_t i = 0, n = (size_t)p->width * (size_t)p->height; i < n; i++) {
        double v = value_of(*p, stored_at(*p, i));
        lowest = std::min(lowest, v);
        greatest = std::max(greatest, v);
    }
    p->center = lowest;
    p->width_voi = greatest;
}

/* The entry of the VOI LUT, as 0..1. Values beyond its ends get the entry at the end. Fractions of
 * rescaled values are cut off. */
double look_up(const frame &p, double v) {
    const double last = (double)(p.lut.size() - 1);
    const double at = std::min(std::max(std::floor(v) - p.lut_first, 0.0), last);
    return std::min((double)p.lut[(size_t)at] / p.lut_most, 1.0);
}

/* 0..1, by DICOM PS3.3 C.11.2.1.1 to C.11.2.1.3. */
double window(const frame &p, double v) {
    double c = p.center, w = p.width_voi, y = 0;
    switch (p.function) {
    case LINEAR: // the border decides where w = 1
        if (v <= c - 0.5 - (w - 1) / 2)
            return 0;
        y = v > c - 0.5 + (w - 1) / 2 ? 1 : (v - (c - 0.5)) / (w - 1) + 0.5;
        break;
    case LINEAR_EXACT: y = (v - c) / w + 0.5; break;
    case SIGMOID: y = 1 / (1 + std::exp(-4 * (v - c) / w)); break;
    case LOOKUP: return look_up(p, v);
    case MIN_MAX: y = w > c ? (v - c) / (w - c) : 0; break;
    }
    return std::min(std::max(y, 0.0), 1.0);
}

void render(const frame &p, uint8_t *table, uint8_t *grey) {
    for (unsigned s = 0; s < 1u << p.stored; s++) {
        uint8_t y = (uint8_t)(window(p, value_of(p, s)) * 255 + 0.5);
        table[s] = p.inverted ? (uint8_t)(255 - y) : y;
    }
    for (size_t i = 0, n = (size_t)p.width * (size_t)p.height; i < n; i++)
        grey[i] = table[stored_at(p, i)];
}

enum chex_status read_file(const char *name, const uint8_t *data, size_t size,
                           DcmFileFormat *format, struct chex_error *err) {
    DcmInputBufferStream stream;
    stream.setBuffer(data, (offile_off_t)size);
    stream.setEos();
    format->transferInit();
    OFCondition c = format->read(stream);
    format->transferEnd();
    if (c.bad())
        return chex_error_set(err, CHEX_E_DATA, "%s: DCMTK: %s", name, c.text());
    return CHEX_OK;
}

/* Refuses deflated files: their unpacked size has no bound, and DCMTK unpacks them while it parses.
 */
enum chex_status refuse_deflated(const char *name, const uint8_t *data, size_t size,
                                 struct chex_error *err) {
    DcmInputBufferStream stream;
    DcmMetaInfo meta;
    OFString syntax;
    stream.setBuffer(data, (offile_off_t)size);
    stream.setEos();
    meta.transferInit();
    OFCondition c = meta.read(stream, EXS_Unknown);
    meta.transferEnd();
    if (c.bad())
        return chex_error_set(err, CHEX_E_DATA, "%s: DCMTK: %s", name, c.text());
    meta.findAndGetOFString(DCM_TransferSyntaxUID, syntax);
    if (DcmXfer(syntax.c_str()).getStreamCompression() != ESC_none)
        return chex_error_set(err, CHEX_E_DATA, "%s: a deflated transfer syntax, which is not read",
                              name);
    return CHEX_OK;
}

/* Copies a text of the data set without the blanks at its end; "" if the file does not have it. */
void get_text(const file &f, const DcmTagKey &tag, char *out, size_t size) {
    OFString text;
    f.dataset->findAndGetOFString(tag, text);
    size_t n = std::min(text.size(), size - 1);
    while (n && (text[n - 1] == ' ' || text[n - 1] == '\0'))
        n--;
    std::copy(text.begin(), text.begin() + (std::ptrdiff_t)n, out);
    out[n] = '\0';
}

void get_about(const file &f, struct chex_image_about *about) {
    get_text(f, DCM_StudyInstanceUID, about->study_uid, sizeof about->study_uid);
    get_text(f, DCM_SeriesInstanceUID, about->series_uid, sizeof about->series_uid);
    get_text(f, DCM_ViewPosition, about->view, sizeof about->view);
}

enum chex_status decode_file(const uint8_t *data, size_t size, const char *name,
                             struct chex_image *image, struct chex_error *err) {
    DcmFileFormat format;
    std::vector<uint16_t> samples;
    frame p = {};
    CHEX_TRY(refuse_deflated(name, data, size, err));
    CHEX_TRY(read_file(name, data, size, &format, err));
    file f = {name, format.getDataset(), err};
    get_about(f, &image->about);
    CHEX_TRY(get_layout(f, &p));
    CHEX_TRY(get_meaning(f, &p));
    CHEX_TRY(check_size(f, p, size));
    CHEX_TRY(get_pixels(f, &p, &samples));
    CHEX_TRY(chex_image_reserve(image, p.width, p.height, err));
    std::vector<uint8_t> table((size_t)1 << MAX_STORED_BITS);
    if (p.function == MIN_MAX)
        find_range(&p);
    render(p, table.data(), image->pixels);
    return CHEX_OK;
}

enum chex_status decode(struct chex_image_reader *, const uint8_t *data, size_t size,
                        const char *name, struct chex_image *image, struct chex_error *err) {
    try {
        static const decoders registered;
        if (!dcmDataDict.isDictionaryLoaded())
            return chex_error_set(err, CHEX_E_ENV,
                                  "%s: DCMTK finds no data dictionary: install it, or name it in "
                                  "DCMDICTPATH",
                                  name);
        return decode_file(data, size, name, image, err);
    } catch (const std::bad_alloc &) {
        return chex_error_memory(err, "%s", name);
    } catch (const std::exception &e) {
        return chex_error_set(err, CHEX_E_DATA, "%s: DCMTK: %s", name, e.what());
    }
}

bool never(const uint8_t *, size_t) { return false; }

} // namespace

extern "C" {
CHEX_MODULE_VERSION_SYMBOL
/* The module's entry. image_dicom.c recognises the files and calls `decode` of this entry. */
__attribute__((visibility("default"))) extern const struct chex_image_format chexnet_image_dicom;
const struct chex_image_format chexnet_image_dicom = {"dicom", never, decode};
}
