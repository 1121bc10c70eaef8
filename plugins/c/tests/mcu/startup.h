/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>

int run(void);
void semihosting_exit(uint32_t status);
int read_file(const char *name, void *data, uint32_t bytes);
int write_file(const char *name, const void *data, uint32_t bytes);
uint32_t unused_stack(void);
