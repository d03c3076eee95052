/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes messages in the wire format of Protocol Buffers: fields of numbers (varint, fixed 32 or 64
 * bits) and of bytes with a length. Nested messages are built first and added as bytes. Source:
 * protobuf.dev, "Encoding".
 *
 * Lack of memory sets `failed`, also of the messages around. The writer looks at it at the end, so
 * that a writer is a plain list of fields.
 */
#ifndef CHEX_MODEL_PROTOBUF_H
#define CHEX_MODEL_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Starts as {0}. */
struct chex_protobuf {
    char *data;
    size_t bytes, capacity;
    bool failed;
};

void chex_protobuf_int(struct chex_protobuf *to, int field, int64_t value);
void chex_protobuf_float(struct chex_protobuf *to, int field, float value);
void chex_protobuf_double(struct chex_protobuf *to, int field, double value);
void chex_protobuf_bytes(struct chex_protobuf *to, int field, const void *data, size_t bytes);
void chex_protobuf_text(struct chex_protobuf *to, int field, const char *text);

/* Adds a nested message and frees it. */
void chex_protobuf_message(struct chex_protobuf *to, int field, struct chex_protobuf *message);

#endif
