// SPDX-License-Identifier: Apache-2.0
// An audit library of the dynamic linker (LD_AUDIT): replaces CPUID in libraries that are loaded.
//
// CPUID_SITES names a file of lines "device inode address": an instruction's address in the library
// of that device and inode. UD0 is written over each of them before the library's constructors run.
// cpuid_mask.c answers it. See masked.py.
#define _GNU_SOURCE
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

unsigned la_version(unsigned version) { return version; }

static void patch(uintptr_t at) {
    static const unsigned char cpuid[2] = {0x0f, 0xa2}, ud0[2] = {0x0f, 0xff};
    if (memcmp((void *)at, cpuid, 2)) return;
    uintptr_t page = at & -(uintptr_t)sysconf(_SC_PAGESIZE);
    if (mprotect((void *)page, at + 2 - page, PROT_READ | PROT_WRITE | PROT_EXEC)) return;
    memcpy((void *)at, ud0, 2);
    mprotect((void *)page, at + 2 - page, PROT_READ | PROT_EXEC);
}

unsigned la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie) {
    (void)space, (void)cookie;
    struct stat file;
    const char *sites = getenv("CPUID_SITES");
    FILE *lines = sites && *map->l_name && !stat(map->l_name, &file) ? fopen(sites, "r") : 0;
    unsigned long device, inode, address;
    while (lines && fscanf(lines, "%lu %lu %lx", &device, &inode, &address) == 3)
        if (device == file.st_dev && inode == file.st_ino) patch(map->l_addr + address);
    if (lines) fclose(lines);
    return 0;
}
