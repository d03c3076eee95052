/* SPDX-License-Identifier: Apache-2.0
 *
 * The wire format of Protocol Buffers.
 */
#include "model/protobuf.h"

#include <stdlib.h>
#include <string.h>

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5, MAX_VARINT = 10 };

static bool reserve(struct chex_protobuf *to, size_t bytes) {
    if (bytes <= to->capacity - to->bytes)
        return true;
    const size_t capacity = 2 * to->capacity + bytes;
    char *more = realloc(to->data, capacity);
    if (!more)
        return false;
    to->data = more;
    to->capacity = capacity;
    return true;
}

static void append(struct chex_protobuf *to, const void *data, size_t bytes) {
    to->failed = to->failed || !reserve(to, bytes);
    if (to->failed || !bytes)
        return;
    memcpy(to->data + to->bytes, data, bytes);
    to->bytes += bytes;
}

/* Seven bits a byte, lowest first; the top bit says that more follow. */
static void append_varint(struct chex_protobuf *to, uint64_t n) {
    unsigned char bytes[MAX_VARINT];
    size_t count = 0;
    for (; n >= 0x80; n >>= 7)
        bytes[count++] = (unsigned char)(n | 0x80);
    bytes[count++] = (unsigned char)n;
    append(to, bytes, count);
}

static void append_tag(struct chex_protobuf *to, int field, int wire) {
    append_varint(to, (uint64_t)field << 3 | (uint64_t)wire);
}

void chex_protobuf_int(struct chex_protobuf *to, int field, int64_t value) {
    append_tag(to, field, WIRE_VARINT);
    append_varint(to, (uint64_t)value);
}

/* Lowest byte first. */
static void append_fixed(struct chex_protobuf *to, uint64_t bits, size_t count) {
    unsigned char bytes[sizeof bits];
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)(bits >> (8 * i));
    append(to, bytes, count);
}

void chex_protobuf_float(struct chex_protobuf *to, int field, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    append_tag(to, field, WIRE_32);
    append_fixed(to, bits, sizeof bits);
}

void chex_protobuf_double(struct chex_protobuf *to, int field, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    append_tag(to, field, WIRE_64);
    append_fixed(to, bits, sizeof bits);
}

void chex_protobuf_bytes(struct chex_protobuf *to, int field, const void *data, size_t bytes) {
    append_tag(to, field, WIRE_BYTES);
    append_varint(to, bytes);
    append(to, data, bytes);
}

void chex_protobuf_text(struct chex_protobuf *to, int field, const char *text) {
    chex_protobuf_bytes(to, field, text, strlen(text));
}

void chex_protobuf_message(struct chex_protobuf *to, int field, struct chex_protobuf *message) {
    to->failed = to->failed || message->failed;
    chex_protobuf_bytes(to, field, message->data, message->bytes);
    free(message->data);
    *message = (struct chex_protobuf){0};
}
