/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin of QEMU: counts instructions, between two addresses or all. Declares what it uses. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum { INLINE_ADD_U64 = 0, NO_REGS = 0 };

extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t,
                                                  void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int, void *, uint64_t);
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *,
                                                 void (*)(unsigned int, void *), int, void *);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
extern void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, void *), void *);

int qemu_plugin_version = 1;

static uint64_t count, first, last, begin, end;
static const char *path;

static void mark(unsigned int cpu, void *which)
{
    (void)cpu;
    *(uint64_t *)which = count;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    const uint64_t at = qemu_plugin_tb_vaddr(block);
    if (at == begin) {
        qemu_plugin_register_vcpu_tb_exec_cb(block, mark, NO_REGS, &first);
    }
    if (at == end) {
        qemu_plugin_register_vcpu_tb_exec_cb(block, mark, NO_REGS, &last);
    }
    qemu_plugin_register_vcpu_tb_exec_inline(block, INLINE_ADD_U64, &count, qemu_plugin_tb_n_insns(block));
}

static void finished(qemu_plugin_id_t id, void *none)
{
    (void)id;
    (void)none;
    FILE *file = fopen(path, "w");
    if (file != NULL) {
        fprintf(file, "%" PRIu64 "\n", begin ? last - first : count);
        fclose(file);
    }
}

int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv)
{
    (void)info;
    for (int i = 0; i < argc; ++i) {
        if (strncmp(argv[i], "begin=", 6) == 0) {
            begin = strtoull(argv[i] + 6, NULL, 0);
        } else if (strncmp(argv[i], "end=", 4) == 0) {
            end = strtoull(argv[i] + 4, NULL, 0);
        } else if (strncmp(argv[i], "result=", 7) == 0) {
            path = argv[i] + 7;
        }
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, finished, NULL);
    return 0;
}
