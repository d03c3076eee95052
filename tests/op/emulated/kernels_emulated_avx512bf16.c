/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels_amx.c with tiles in plain C: the table chex_cpu_kernels_amx_emulated.
 */
#define CHEX_AMX_EMULATED
#include "engine/cpu/kernels_amx.c"
