/* SPDX-License-Identifier: Apache-2.0
 *
 * Which device an engine gets, and what is said where there is none. On a real GPU, the parts that
 * only an emulated node can show are left out.
 */
#include "engine/cuda/host/device.h"

#include "gpu/gpu_test.h"

static void present(void) {
    struct chex_gpu_list list;
    struct gpu_device d;
    struct chex_error err;
    char text[160] = "";
    OK_STATUS(gpu_devices(&list, &err), CHEX_OK, err, NULL);
    OK(list.count >= 1 && strlen(list.gpus[0].pci_bus_id) >= 12 && list.gpus[0].name[0] &&
           list.gpus[0].capability >= 70 && list.gpus[0].memory_bytes > 0,
       "%s, %s", list.gpus[0].pci_bus_id, list.gpus[0].name);
    OK_STATUS(gpu_probe(text, sizeof text, &err), CHEX_OK, err, NULL);
    OK(strstr(text, list.gpus[0].name) && strstr(text, "CUDA 1"), "%s", text);
    OK_STATUS(gpu_device_open(NULL, &d, &err), CHEX_OK, err, NULL);
    OK(strcmp(d.pci_bus_id, list.gpus[0].pci_bus_id) == 0, "the first one where none is named");
    OK_STATUS(gpu_device_open(&list.gpus[0], &d, &err), CHEX_OK, err, NULL);
    OK(d.sms > 0 && d.shared_max >= 48 << 10 && d.l2_bytes > 0 && d.free_bytes > 0 &&
           d.free_bytes <= d.memory_bytes && d.capability == list.gpus[0].capability,
       "%d multiprocessors, %zu KB of shared memory, %zu MB free", d.sms, d.shared_max >> 10,
       d.free_bytes >> 20);
    struct chex_gpu other = {.pci_bus_id = "0000:ff:1f.7"};
    OK_STATUS(gpu_device_open(&other, &d, &err), CHEX_E_ENV, err, "0000:ff:1f.7 is not among");
}

#ifdef CHEX_GPU_EMULATED
static void two(void) {
    struct chex_gpu_list list;
    struct gpu_device d;
    struct chex_error err;
    int current = -1;
    setenv("EMULATED_BUSES", "5d,1b", 1);
    OK_STATUS(gpu_devices(&list, &err), CHEX_OK, err, NULL);
    OK(list.count == 2 && strcmp(list.gpus[0].pci_bus_id, "0000:1b:00.0") == 0 &&
           strcmp(list.gpus[1].pci_bus_id, "0000:5d:00.0") == 0,
       "two, by bus id, not by CUDA's numbers");
    OK_STATUS(gpu_device_open(&list.gpus[0], &d, &err), CHEX_OK, err, NULL);
    cudaGetDevice(&current);
    OK(d.index == 1 && current == 1, "the first bus is CUDA's second device, and the current one");
    OK_STATUS(gpu_device_open(&list.gpus[1], &d, &err), CHEX_OK, err, NULL);
    cudaGetDevice(&current);
    OK(d.index == 0 && current == 0, "the other way round");
    unsetenv("EMULATED_BUSES");
}

static void absent(void) {
    struct chex_gpu_list list;
    struct gpu_device d;
    struct chex_error err;
    char text[160];
    setenv("EMULATED_GPU", "0", 1);
    OK_STATUS(gpu_devices(&list, &err), CHEX_E_ENV, err, "CUDA shows no GPU to this task");
    setenv("CUDA_VISIBLE_DEVICES", "7", 1);
    OK_STATUS(gpu_probe(text, sizeof text, &err), CHEX_E_ENV, err, "CUDA_VISIBLE_DEVICES is 7");
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    OK_STATUS(gpu_probe(text, sizeof text, &err), CHEX_E_ENV, err, "CUDA_VISIBLE_DEVICES is empty");
    setenv("EMULATED_DRIVER", "0", 1);
    OK_STATUS(gpu_devices(&list, &err), CHEX_E_ENV, err, "libcuda.so.1 is missing");
    setenv("EMULATED_DRIVER", "12020", 1);
    OK_STATUS(gpu_devices(&list, &err), CHEX_E_ENV, err,
              "too old: it serves CUDA 12.2, this chexnet is built with CUDA 13.0");
    unsetenv("EMULATED_DRIVER");
    setenv("EMULATED_GPU", "6.1", 1);
    OK_STATUS(gpu_device_open(NULL, &d, &err), CHEX_E_ENV, err,
              "has capability 6.1: expected 7.5 or more with CUDA 13.0");
    unsetenv("EMULATED_GPU");
}
#endif

static void errors(void) {
    struct chex_error err;
    OK_STATUS(gpu_error(cudaErrorMemoryAllocation, "activations", &err), CHEX_E_RESOURCE, err,
              "activations: out of memory");
    OK_STATUS(gpu_error(cudaErrorECCUncorrectable, "a step", &err), CHEX_E_NODE, err, "a step: ");
    OK_STATUS(gpu_error(cudaErrorDevicesUnavailable, "x", &err), CHEX_E_ENV, err, NULL);
    OK_STATUS(gpu_error(cudaErrorInvalidValue, "x", &err), CHEX_E_FAIL, err, "invalid argument");
}

int main(void) {
    present();
#ifdef CHEX_GPU_EMULATED
    two();
    absent();
#endif
    errors();
    return tap_done();
}
