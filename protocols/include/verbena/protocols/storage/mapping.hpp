// SPDX-License-Identifier: Apache-2.0
// mapping: what bytes of a file are for who lets peers read and write them by RDMA: memory, or a store.
#pragma once

#include <verbena/core/verbs/byte_store.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::storage {

/// What a mapping is for.
enum class map_use : std::uint8_t {
    read,
    write, ///< and to read, for which both rights are needed; so each byte of the range gets memory
    /// As `write`. Bytes that a snapshot has as well may come with fresh memory besides: mapping::part::beneath.
    write_apart,
};

/// Bytes of a file.
struct mapped_range {
    std::uint64_t offset = 0; ///< of the first byte
    std::uint64_t length = 0; ///< bytes
};

/// What a peer has written by a mapping.
struct peer_writes {
    /// The bytes before `e` at least, and all of the blocks in `f`, which is borrowed.
    peer_writes(std::uint64_t e, std::span<const mapped_range> f = {}) noexcept : end(e), filled(f) {}
    std::uint64_t end; ///< up to there at least; 0: nobody knows
    /// Bytes of mapping::part::memory that were fresh, whole blocks: they are the file's from now on. What is not fresh counts as well,
    /// and is the file's anyhow.
    std::span<const mapped_range> filled;
};

/// Bytes of a file, as file_backend::map() yields them. What read() and write() do, and what is written to this memory, is the
/// same file: each sees the other's bytes at once, and nobody puts bytes in order that both touch. What is written to memory behind
/// the end of the file is the file's when note_written() says so, or when write() makes the file grow over it.
///
/// A back end whose files are not in memory yields a store in place of it, which reads and writes by calls, by the rights of who asked for the
/// mapping. A write to it behind the end makes the file longer at once.
///
/// Lifetime: the memory is the file's, where it is, as long as `pin` or a copy of it is there, whatever becomes of the file's
/// names; the back end outlives that. Until then what would take the memory away is refused: EAGAIN for a size that ends before
/// it and for clone() onto it. Shard: used and let go on any.
struct mapping {
    /// Bytes that are one after the other in memory.
    struct part {
        std::uint64_t offset = 0;    ///< in the file
        std::span<std::byte> memory; ///< where they are
        /// The file's bytes, which are to be read alone, where `memory` is fresh: that holds zeros, and no part of it is the file's until
        /// note_written() says so, of whole blocks. What it does not say so of is dropped with the mapping. Nobody else gets a
        /// mapping of these bytes meanwhile, nor changes them: EAGAIN. As long as `memory`; or none.
        std::span<const std::byte> beneath = {};
    };
    /// In order; begin and end at multiples of filesystem_info::map_block, which may be outside of what was asked for, and behind
    /// the end of the file. What lies between them reads as zeros: of map_use::read alone, and until somebody writes there.
    std::vector<part> parts;
    /// Or nothing. Its offsets are those of the file, and there are no parts. With `length` 0 there is none.
    std::shared_ptr<verbs::byte_store> store;
    std::shared_ptr<const void> pin;
    /// Bytes from the offset that was asked for: as many as were, or fewer where the file ends or where more would take the
    /// back end long. Who wants more asks again, from there on.
    std::uint64_t length = 0;
    attributes attrs; ///< of the file, when this was made
};

} // namespace verbena::storage

#pragma GCC visibility pop
