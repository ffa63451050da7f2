// SPDX-License-Identifier: Apache-2.0
// Preloaded into a server, it makes every sync a lie: a test of what survives a loss of power must then fail.
#include <cstddef>
#include <fcntl.h>
#include <unistd.h>

extern "C" {

int fsync(int) { return 0; }
int fdatasync(int) { return 0; }
int syncfs(int) noexcept { return 0; }
int sync_file_range(int, off64_t, off64_t, unsigned) { return 0; }
void sync() noexcept {}
}
