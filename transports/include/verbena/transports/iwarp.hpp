// SPDX-License-Identifier: Apache-2.0
// iWARP in user space over an ordinary TCP socket: RFC 5040 (RDMAP), 5041 (DDP), 5044 (MPA) and 6581
// (enhanced set-up, revision 2), as the Linux siw driver and iWARP adapters speak it. No RDMA
// device, no kernel module. docs/internals/iwarp.md.
#pragma once

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/net/peer_shares.hpp>
#include <verbena/core/verbs/verbs.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::iwarp {

/// What this end asks for in MPA start-up. CRC is used when either end asks (RFC 5044 7.1.1).
enum class crc_mode : std::uint8_t { off, on };

/// How a context speaks iWARP, and what its peers may cost.
struct options {
    crc_mode crc = crc_mode::off; ///< CRC32C of each FPDU; used if the peer asks for it, too
    /// A peer that has not sent a valid MPA frame by then is dropped.
    duration startup_timeout = std::chrono::seconds(5);
    /// Peers between accept and a valid MPA frame; one more costs the oldest its place.
    std::uint32_t max_starting = 4096;
    /// Of these, with those that the service has not answered yet, those of one peer (peer_use::handshakes): so one that says nothing
    /// takes no other peer's place. Counted over all contexts that are given the same `peers`.
    std::uint32_t max_peer_starting = 1024;
    /// Outlives the context; nullptr: the peers of one context are not told apart.
    peer_shares* peers = nullptr;
    /// Connections that wait for the service to accept them.
    std::uint32_t max_waiting = 1024;
    /// An end that was asked for but not answered is forced after this.
    duration close_timeout = std::chrono::seconds(2);
    /// Data or a keep-alive unacknowledged for this long ends the connection.
    duration peer_timeout = std::chrono::seconds(60);
    /// For the rest of an FPDU that has begun, however slowly more of it comes; then the connection ends. Likewise for a
    /// peer to take what was read for it from a store (256 KiB at most), if others wait for the memory.
    duration fpdu_limit = std::chrono::seconds(60);
    /// Where buffers for stores come from (verbs::byte_store): a pool of the context's shard. The pool outlives the
    /// context, and each access to a store: one that a disk holds up goes on behind the end of its connection, and of
    /// the context, until the revocation of its grant is over. nullptr: there is a pool for the context alone, of
    /// max_store_bytes.
    buffer_pool* buffers = nullptr;
    /// Bytes of such buffers that the context's connections have in use at once. Each access has one, and waits in
    /// line where there is none. One of 64 KiB is always there, beside these. Where `peers` is set, a peer has half of
    /// them at most, and peers take turns.
    std::size_t max_store_bytes = std::size_t(16) << 20;
    /// Sees each peer whose MPA request has been read before `where` does; takes it (for another shard) or leaves it. Called in the
    /// poll phase.
    std::function<void(std::unique_ptr<verbs::arrival>& peer, verbs::listener& where)> divert;
};

/// Why a connection was refused or ended. Bounded label of the metrics.
enum class end_cause : std::uint8_t {
    orderly,              ///< closed by us after draining, or by the peer between messages
    peer_reset,           ///< TCP ended in the middle of something
    peer_terminate,       ///< the peer sent Terminate
    startup_timeout,      ///< no valid MPA frame in time
    startup_crowded,      ///< too many peers in start-up
    bad_startup,          ///< wrong key, flags or private-data length
    revision_refused,     ///< MPA revision other than 2
    markers_refused,      ///< the peer wants markers
    peer_to_peer_refused, ///< no ready-to-receive message both ends can use
    waiting_crowded,      ///< the service accepts too slowly
    rejected,             ///< the service or the peer said no
    crc_error,
    protocol_error, ///< DDP or RDMAP header against the rules
    access_error,   ///< steering tag, range or access
    no_receive,     ///< a Send without a posted receive, or too long for it
    slow_fpdu,      ///< options::fpdu_limit
    slow_reader,    ///< options::fpdu_limit, for what it had read of a store
    store_failed,   ///< a store could not be read for the peer
    setup_failed,   ///< an exception, as for lack of memory, kept a peer from being taken
    local,          ///< killed by this end
    count_
};
/// A label of the metrics. A literal.
std::string_view to_string(end_cause c) noexcept;

/// Counters of one context. One writer; any thread may read.
struct stats {
    /// connections that ended, and peers that were refused, by end_cause
    std::array<std::atomic<std::uint64_t>, std::size_t(end_cause::count_)> ends{};
    std::atomic<std::uint64_t> accepted{0};       ///< peers that were taken
    std::atomic<std::uint64_t> connected{0};      ///< connections that this end made
    std::atomic<std::uint64_t> active{0};         ///< connections that stand now
    std::atomic<std::uint64_t> bytes_received{0}; ///< by this context's connections, with all headers
    std::atomic<std::uint64_t> bytes_sent{0};     ///< likewise
    std::atomic<std::uint64_t> payload_copied_bytes{
        0};                                           ///< of Writes and Reads, not placed where they arrived
    std::atomic<std::uint64_t> read_depth_waits{0};   ///< Reads that waited for ORD
    std::atomic<std::uint64_t> crc_checked{0};        ///< FPDUs received whose CRC32C was right
    std::atomic<std::uint64_t> store_accesses{0};     ///< reads and writes of stores for peers
    std::atomic<std::uint64_t> store_waits{0};        ///< of them, those that suspended
    std::atomic<std::uint64_t> store_failures{0};     ///< of them, those that failed
    std::atomic<std::uint64_t> store_buffer_bytes{0}; ///< in use now
    std::atomic<std::uint64_t> store_buffer_waits{0}; ///< times that an access waited for a buffer
    std::atomic<std::uint64_t> receives{0};           ///< recvmsg calls
    std::atomic<std::uint64_t> sends{0};              ///< sendmsg calls
};

/// Registers what `s` counts, which outlives what it returns; once for each context. Any thread.
metric_registrations expose(metric_registry& registry, const stats& s);

/// The device on one shard. Also the home of what only iWARP has.
class context : public verbs::context {
public:
    /// What this context counts, as long as it lives.
    virtual const iwarp::stats& counters() const noexcept = 0;
    /// A listener without a socket of its own: it serves the sockets given to adopt().
    virtual result<std::unique_ptr<verbs::listener>> listen_adopted(std::string_view url) = 0;
    /// Takes over a connected, just accepted socket for `where`, one of this context's listeners.
    virtual void adopt(int fd, verbs::listener& where) noexcept = 0;
    /// Takes over a peer that another context's listener diverted, for `where`, one of this context's listeners.
    virtual void adopt(std::unique_ptr<verbs::arrival> peer, verbs::listener& where) noexcept = 0;
};

/// iWARP in this process. Its domains and grants are for the connections of all its contexts. Destroyed after these and after its
/// domains.
class device : public verbs::device {
public:
    /// The device on `shard`, which outlives it; call it, and destroy it, on the shard's thread or while that doesn't run. Its
    /// connections end before the shard's loop does: a revocation by another shard waits for what they owe. Throws
    /// std::length_error where it has 1024 contexts.
    virtual std::unique_ptr<context> make_context(reactor& shard, const options& o = {}) = 0;
};

/// A device without a context yet. Any thread.
std::unique_ptr<device> make_device();

/// A device with one context, and with which it goes: for a program of one shard. As its make_context().
std::unique_ptr<context> make_context(reactor& shard, const options& o = {});

} // namespace verbena::iwarp

#pragma GCC visibility pop
