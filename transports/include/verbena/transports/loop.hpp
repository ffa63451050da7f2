// SPDX-License-Identifier: Apache-2.0
// Verbs within one process: every operation of the interface, no wire, no device. For tests and simulations:
// with a virtual clock and a seed, a run with all its delays and faults can be had again.
// docs/internals/loop.md.
//
// A fabric is what connects; a context is one device on it. All of a fabric lives on one shard.
#pragma once

#include <verbena/core/verbs.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::loop {

/// What can go wrong by itself.
enum class fault : std::uint8_t {
    drop,    ///< a message is lost and sent again later; too often, and the connection is
    delay,   ///< a message takes longer, and those behind it with it
    reorder, ///< a completion shows later: those of the other direction and of other queue pairs overtake
    receiver_not_ready, ///< a Send finds no receive although one is posted
    flush,              ///< a queue pair breaks in the middle of its work
    disconnect,         ///< the connection ends, decided by neither side
    device_removal,     ///< one end's device goes with all its connections, and comes back
    count_
};
std::string_view to_string(fault f) noexcept;

/// What every message goes through. Times are of the shard's clock.
struct conditions {
    /// How often, per million messages, by fault.
    std::array<std::uint32_t, std::size_t(fault::count_)> per_million{};
    std::uint32_t& operator[](fault f) noexcept { return per_million[std::size_t(f)]; }

    duration latency = duration::zero();               ///< one way
    duration max_delay = std::chrono::milliseconds(1); ///< of delay and reorder: evenly from 0
    duration retransmit_after = std::chrono::microseconds(500);
    unsigned retries = 7; ///< a message dropped more often ends its connection: retry_exceeded
    duration receiver_not_ready_wait = std::chrono::microseconds(100);
    unsigned receiver_not_ready_retries = 64;         ///< then rnr_retry_exceeded
    duration removal = std::chrono::milliseconds(50); ///< until a removed device returns
};

struct fabric_options {
    std::uint64_t seed = 1; ///< of faults, delays and steering tags; 0 counts as 1
    loop::conditions conditions;
};

/// What happened on a fabric. On its shard.
struct stats {
    std::array<std::uint64_t, std::size_t(fault::count_)> faults{}; ///< those injected
    std::uint64_t messages = 0; ///< Sends, Writes, Reads that were carried out
    std::uint64_t bytes = 0;
    std::uint64_t receiver_not_ready = 0; ///< times that a Send waited for a receive, for whatever reason
    std::uint64_t read_depth_waits = 0;   ///< Reads that waited for ORD
    std::uint64_t connections = 0;
    std::uint64_t active = 0; ///< queue pairs that are connected
};

struct options {
    std::string name = "loop"; ///< the device's; what its peers see as its address
    /// What query() says, and what is enforced: a request that asks for more fails. Segments, outstanding
    /// Reads and inline data are capped at max_segments, max_reads and max_inline.
    /// read_sink_needs_remote_write is only told: regions have no rights of their own.
    verbs::capabilities profile;

    static constexpr std::uint32_t max_segments = 4;
    static constexpr std::uint32_t max_reads = 256;
    static constexpr std::uint32_t max_inline = 64;
    options();
};

/// A device.
class context : public verbs::context {
public:
    /// The device goes: its connections end with ENODEV, its listeners hear nothing, connect() fails.
    virtual void remove_device() noexcept = 0;
    /// It is back; listeners serve again.
    virtual void return_device() noexcept = 0;
    virtual bool present() const noexcept = 0;
    /// Grants that stand. 0 when everybody has cleaned up.
    virtual std::size_t grants() const noexcept = 0;
};

/// Destroyed after every context on it; these after everything made from them.
class fabric {
public:
    virtual ~fabric() = default;
    virtual std::unique_ptr<context> make_context(const options& o = {}) = 0;
    /// For messages posted from now on.
    virtual void set_conditions(const loop::conditions& c) noexcept = 0;
    virtual const loop::stats& counters() const noexcept = 0;
    /// Covers each completion, connection and end so far: its time, place, kind, length and status. Two runs
    /// that did the same have the same.
    virtual std::uint64_t trace() const noexcept = 0;
};

/// Call it on the shard's thread, or before the shard runs.
std::unique_ptr<fabric> make_fabric(reactor& shard, const fabric_options& o = {});

} // namespace verbena::loop

#pragma GCC visibility pop
