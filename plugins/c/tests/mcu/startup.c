/* SPDX-License-Identifier: Apache-2.0 */
/* Start of a program on a Cortex-M, and files of the host through semihosting. No C library. */
#include "startup.h"

extern uint32_t stack_top[], stack_bottom[], bss_start[], bss_end[];

void reset(void);

static void fault(void)
{
    semihosting_exit(99);
}

__attribute__((section(".vectors"), used)) static const struct {
    uint32_t *stack;
    void (*handlers[15])(void);
} vectors = {stack_top, {reset, fault, fault, fault, fault, fault, fault, 0, 0, 0, fault, fault, 0, fault, fault}};

static uint32_t semihosting(uint32_t operation, const void *argument)
{
    register uint32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

void semihosting_exit(uint32_t status)
{
    const uint32_t block[2] = {0x20026, status};
    semihosting(0x20, block);
    for (;;) {
    }
}

static uint32_t open_file(const char *name, uint32_t mode)
{
    uint32_t length = 0;
    while (name[length] != 0) {
        ++length;
    }
    const uint32_t block[3] = {(uint32_t)name, mode, length};
    return semihosting(0x01, block);
}

int read_file(const char *name, void *data, uint32_t bytes)
{
    const uint32_t block[3] = {open_file(name, 1), (uint32_t)data, bytes};
    return semihosting(0x06, block) == 0 ? 0 : -1;
}

int write_file(const char *name, const void *data, uint32_t bytes)
{
    const uint32_t block[3] = {open_file(name, 5), (uint32_t)data, bytes};
    return semihosting(0x05, block) == 0 ? 0 : -1;
}

uint32_t unused_stack(void)
{
    uint32_t *word = stack_bottom;
    while (*word == 0xA5A5A5A5U) {
        ++word;
    }
    return 4U * (uint32_t)(word - stack_bottom);
}

void reset(void)
{
#if defined(__ARM_FP)
    *(volatile uint32_t *)0xE000ED88 |= 0xFU << 20; /* the floating-point unit, before its first use */
    __asm__ volatile("dsb\nisb");
#endif
    uint32_t *here;
    __asm__ volatile("mov %0, sp" : "=r"(here));
    for (uint32_t *word = stack_bottom; word < here - 16; ++word) {
        *word = 0xA5A5A5A5U;
    }
    for (uint32_t *word = bss_start; word < bss_end; ++word) {
        *word = 0;
    }
    semihosting_exit((uint32_t)run());
}
