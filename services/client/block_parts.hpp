// SPDX-License-Identifier: Apache-2.0
// What the commands of `verbena block` have in common.
#pragma once

#include "block.hpp"
#include "block_session.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace verbena::cli {

/// Bytes on the way at once.
inline constexpr std::size_t block_turn = std::size_t(4) << 20;

/// Those of `r`, which outlives what uses them.
block_session::providers providers_of(runtime& r);

/// A session with its paths, and one device that is open. `link` is to be closed.
struct opened_block {
    opened_block(runtime& r, const block_options& o);
    /// exit_ok, or a code with all said.
    task<int> open(rnbd::access_mode mode);

    block_place place;
    block_session link;
    rnbd::device* device = nullptr;
    rtrs::client* session = nullptr;
};

/// Whether the end of what an option names may lie within a block.
enum class last_block { whole, may_be_cut };

/// How many bytes `o` means, of which 0 is a number like any other; nothing if they do not lie within the device, or are no whole blocks.
std::optional<std::uint64_t> length_within(const block_options& o, const storage::block_properties& p,
                                           last_block last = last_block::whole);
/// What is to be said then: which option breaks which rule, and what may stand in its place.
std::string out_of_place(const block_options& o, const storage::block_properties& p);

/// Says how much was moved, unless that is not wanted (`-q`).
void tell_moved(const runtime& r, std::uint64_t bytes, const char* what,
                std::chrono::steady_clock::time_point begun);

/// Flushes. If it succeeds, all that was answered is on stable storage, even if the server was started anew meanwhile; else it has said
/// why it did not.
task<int> flush_block(opened_block& d, const block_options& o);

/// Tells on a terminal how far a transfer is.
class block_meter {
public:
    block_meter(runtime& r, std::uint64_t all);
    block_meter(const block_meter&) = delete;
    ~block_meter();
    void add(std::uint64_t bytes);

private:
    bool shown_;
    std::uint64_t all_;
    std::uint64_t done_ = 0;
    std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
    std::chrono::steady_clock::time_point told_;
};

/// `verbena block verify`: writes what block_pattern says, or compares what is there with it.
task<int> verify_block(runtime& r, opened_block& d, const block_options& o);

} // namespace verbena::cli
