/* SPDX-License-Identifier: Apache-2.0
 *
 * chexnet-slurm-step JOB STEP NODE,NODE,...: prints "NODE runs" if a task of the step runs there,
 * and "NODE ended" if none does. A node that does not answer has no line.
 *
 * A program of its own: libslurm ends the process if it finds no configuration, waits for minutes,
 * and writes to standard error. The caller (libcore/launch/slurm_step.c) stops it in time.
 */
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIMIT_S = 60 };

/* Prints the nodes with tasks and removes their names from `left` (count, NULL: removed). */
static void print_running(job_step_pids_response_msg_t *answer, char **left, int count) {
    if (!answer || !answer->pid_list)
        return;
    void *at = slurm_list_iterator_create(answer->pid_list); /* its type has several names */
    for (job_step_pids_t *node; (node = slurm_list_next(at));)
        for (int i = 0; i < count; i++)
            if (left[i] && node->pid_cnt && strcmp(left[i], node->node_name) == 0) {
                printf("%s runs\n", left[i]);
                left[i] = NULL;
            }
    slurm_list_iterator_destroy(at);
}

/* Status of the request; prints the nodes with tasks. */
static int ask(slurm_step_id_t *step, char *nodes, char **left, int count) {
    job_step_pids_response_msg_t *answer = NULL;
    const int status = slurm_job_step_get_pids(step, nodes, &answer);
    print_running(answer, left, count);
    return status;
}

int main(int argc, char **argv) {
    slurm_step_id_t step = {.step_het_comp = NO_VAL};
    if (argc != 4)
        return 2;
    step.job_id = (uint32_t)strtoul(argv[1], NULL, 10);
    step.step_id = (uint32_t)strtoul(argv[2], NULL, 10);
    alarm(LIMIT_S);
    setvbuf(stdout, NULL, _IOLBF, 0);
    char *names = strdup(argv[3]), **left = calloc(strlen(argv[3]) + 1, sizeof *left), *state;
    int count = 0;
    if (!names || !left)
        return 9;
    for (char *name = strtok_r(names, ",", &state); name; name = strtok_r(NULL, ",", &state))
        left[count++] = name;
    slurm_init(NULL);
    (void)ask(&step, argv[3], left, count);
    /* The status of a request to several nodes does not say which of them it is about. */
    for (int i = 0; i < count; i++) {
        if (!left[i])
            continue;
        const int status = ask(&step, left[i], &left[i], 1);
        if (left[i] && (status == SLURM_SUCCESS || status == ESLURM_INVALID_JOB_ID))
            printf("%s ended\n", left[i]);
    }
    free(names);
    free(left);
    return 0;
}
