// SPDX-License-Identifier: Apache-2.0
// Verbs within one process: every operation of the interface, no wire, no device. For tests and simulations:
// with a virtual clock and a seed, a run with all its delays and faults can be had again.
// docs/internals/loop.md.
//
// A fabric is what connects, a device is on it, and a context is that device on one shard. All of a fabric lives on
// one thread, be it with one shard or with several, which simulated_shards drive on one clock.
#pragma once

#include <verbena/core/verbs/verbs.hpp>

#include <array>
#include <cstdint>
#include <functional>
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
    late_revocation,    ///< a revocation takes longer, and until it is over the peer may use the grant
    count_
};
/// A literal.
std::string_view to_string(fault f) noexcept;

/// What every message goes through. Times are of the shards' clock.
struct conditions {
    /// How often, per million messages, by fault; of late_revocation per million revocations of one batch.
    std::array<std::uint32_t, std::size_t(fault::count_)> per_million{};
    std::uint32_t& operator[](fault f) noexcept { return per_million[std::size_t(f)]; }

    duration latency = duration::zero();               ///< one way
    duration max_delay = std::chrono::milliseconds(1); ///< of what comes later: evenly from 0
    /// until a message that was dropped goes again
    duration retransmit_after = std::chrono::microseconds(500);
    unsigned retries = 7; ///< a message dropped more often ends its connection: retry_exceeded
    /// until a Send that found no receive goes again
    duration receiver_not_ready_wait = std::chrono::microseconds(100);
    unsigned receiver_not_ready_retries = 64;         ///< then rnr_retry_exceeded
    duration removal = std::chrono::milliseconds(50); ///< until a removed device returns
};

/// What a fabric is made with.
struct fabric_options {
    std::uint64_t seed = 1;      ///< of faults, delays and steering tags; 0 counts as 1
    loop::conditions conditions; ///< at the start; set_conditions() changes them
};

/// What happened on a fabric. On its thread.
struct stats {
    std::array<std::uint64_t, std::size_t(fault::count_)> faults{}; ///< those injected
    std::uint64_t messages = 0;           ///< Sends, Writes, Reads that were carried out
    std::uint64_t bytes = 0;              ///< of those messages
    std::uint64_t receiver_not_ready = 0; ///< times that a Send waited for a receive, for whatever reason
    std::uint64_t read_depth_waits = 0;   ///< Reads that waited for ORD
    std::uint64_t connections = 0;        ///< that were made
    std::uint64_t active = 0;             ///< queue pairs that are connected
};

/// What a device on a fabric is called and can do.
struct options {
    std::string name = "loop"; ///< the device's; what its peers see as its address
    /// What query() says, and what is enforced: a request that asks for more fails. Segments, outstanding
    /// Reads and inline data are capped at max_segments, max_reads and max_inline.
    /// read_sink_needs_remote_write is only told: regions have no rights of their own.
    verbs::capabilities profile;

    static constexpr std::uint32_t max_segments = 4; ///< of a request
    static constexpr std::uint32_t max_reads = 256;  ///< that a connection may have outstanding
    static constexpr std::uint32_t max_inline = 64;  ///< bytes
    options();
};

/// A device on one shard.
class context : public verbs::context {
public:
    /// Sees each peer that comes to `where`, a listener of this context that has an address, before the listener
    /// does; takes it (for another shard) or leaves it.
    using diverter = std::function<void(std::unique_ptr<verbs::arrival>& peer, verbs::listener& where)>;

    /// The device goes: its connections end with ENODEV, on all shards, its listeners hear nothing, connect() fails.
    virtual void remove_device() noexcept = 0;
    /// It is back; listeners serve again.
    virtual void return_device() noexcept = 0;
    /// Whether the device is there: false between remove_device() and return_device().
    virtual bool present() const noexcept = 0;
    /// Grants of the device that stand. 0 when everybody has cleaned up.
    virtual std::size_t grants() const noexcept = 0;

    /// For peers that come from now on; empty: none. Called in a turn of this shard.
    virtual void divert(diverter d) = 0;
    /// A listener without an address of its own: it serves the peers given to adopt().
    virtual result<std::unique_ptr<verbs::listener>> listen_adopted(std::string_view url) = 0;
    /// Takes over a peer that a listener of the fabric diverted, for `where`, one of this context's listeners.
    virtual void adopt(std::unique_ptr<verbs::arrival> peer, verbs::listener& where) noexcept = 0;
};

/// A device that may be on several shards. Destroyed after its contexts, its domains and their grants.
class device : public verbs::device {
public:
    /// The device on `shard`, which has the fabric's clock and thread. One for each shard.
    virtual std::unique_ptr<context> make_context(reactor& shard) = 0;
    /// As those of its contexts.
    virtual void remove_device() noexcept = 0;
    /// See context::return_device().
    virtual void return_device() noexcept = 0;
    /// See context::present().
    virtual bool present() const noexcept = 0;
    /// See context::grants().
    virtual std::size_t grants() const noexcept = 0;
};

/// Destroyed after every device and context on it; these after everything made from them, and before their shards.
class fabric {
public:
    virtual ~fabric() = default;
    /// A device with one context, on the shard that the fabric was made for. The device goes with it.
    virtual std::unique_ptr<context> make_context(const options& o = {}) = 0;
    /// A device without any yet.
    virtual std::unique_ptr<device> make_device(const options& o = {}) = 0;
    /// For messages posted from now on.
    virtual void set_conditions(const loop::conditions& c) noexcept = 0;
    /// What happened so far; lives as long as the fabric.
    virtual const loop::stats& counters() const noexcept = 0;
    /// Covers each completion, connection and end so far: its time, place, kind, length and status. Two runs
    /// that did the same have the same.
    virtual std::uint64_t trace() const noexcept = 0;
};

/// Call it on the shard's thread, or before the shard runs. The shard outlives the fabric.
std::unique_ptr<fabric> make_fabric(reactor& shard, const fabric_options& o = {});

} // namespace verbena::loop

#pragma GCC visibility pop
