// SPDX-License-Identifier: Apache-2.0
// A socket in the file system is reached from every network namespace that sees the file.
#pragma once

namespace verbena::nfs {

/// Whether a socket of this process's network namespace listens at `path`. False as well if that can't be
/// told: without sock_diag(7), say. Needs no rights. Blocks for an answer of the kernel: for set-up.
bool listens_in_our_network(const char* path) noexcept;

} // namespace verbena::nfs
