// SPDX-License-Identifier: Apache-2.0
// What each peer holds, over all shards, listeners and protocols: one host, however many connections it makes, leaves room for the others.
//
// A connection is charged to its peer before anything is made for it. Whatever else the peer then takes (sessions, memory) is charged
// beside that. A charge is an object: it is given back when it goes. docs/internals/shares.md.
#pragma once

#include <verbena/core/metrics.hpp>
#include <verbena/core/net/kept_out.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#pragma GCC visibility push(default)

namespace verbena {

/// The bits of an IPv6 address within which a host chooses its addresses itself (RFC 4291 2.5.4), which are those of one peer.
inline constexpr unsigned default_peer_prefix = 64;

/// Whose share a peer uses: an IPv4 address; the first `v6_prefix` bits (0 to 128) of an IPv6 address; all of a link-local address, whose
/// prefix all neighbours have. Text that is no address stands for itself. Throws std::bad_alloc.
std::string peer_group(std::string_view address, unsigned v6_prefix = default_peer_prefix);

/// What peers are charged for. Bounded label of the metrics.
enum class peer_use : std::uint8_t {
    handshakes,       ///< connections that have not said yet what they want
    streams,          ///< connections by which calls come as byte streams
    rdma_connections, ///< RPC-over-RDMA
    rtrs_connections,
    rtrs_half_made, ///< paths of RTRS until they are connected
    rtrs_sessions,
    module_connections, ///< of a protocol that a module brings
    memory,             ///< bytes, for as long as a session or a connection lives
    calls_left,         ///< bytes of calls that go on after their connection has ended
    count_
};
/// How many values peer_use has.
inline constexpr std::size_t peer_use_count = std::size_t(peer_use::count_);
/// A label of the metrics, as "nfs_connections".
std::string_view to_string(peer_use u) noexcept;

class peer_charge;

/// What the peers of a program may hold, and what one peer is.
struct peer_options {
    unsigned v6_prefix = default_peer_prefix; ///< bits of an IPv6 address that make one peer
    /// Bytes that a peer may hold for as long as its sessions and connections live: `most` of who charges them.
    std::uint64_t memory = UINT64_MAX;
    /// Connections of each kind that a peer may have; 0: what whoever takes them has for a default.
    std::uint32_t connections = 0;
};

/// The shares of all peers of a program. A peer is known for as long as it holds something, so there are never more of them than
/// connections and sessions. Any thread. Outlives its charges.
class peer_shares {
public:
    /// For one program; what charges peers shares it.
    explicit peer_shares(const peer_options& o = {});
    /// Nothing is charged any more.
    ~peer_shares();
    peer_shares(const peer_shares&) = delete;

    /// Charges the peer at `address` with `amount`, of which it may then have `most` in all. A charge that is false: it would be too
    /// much, or there is no memory to note it, and it is counted as refused. Takes a lock: for what happens once a connection.
    peer_charge charge(std::string_view address, peer_use what, std::uint64_t amount,
                       std::uint64_t most) noexcept;

    /// What is held at one moment, by peer_use where it is an array.
    struct occupation {
        std::size_t peers = 0; ///< that hold something
        /// What the peer that holds most of it holds.
        std::array<std::uint64_t, peer_use_count> greatest{};
        std::array<std::uint64_t, peer_use_count> held{}; ///< by all peers
    };
    /// Visits each peer once, under the lock that charge() takes.
    occupation look() const noexcept;
    // Of look(): who wants several of them looks once.
    /// How many peers hold something now. Takes the lock.
    std::size_t peers() const noexcept;
    /// What the peer that holds most of it holds now. Takes the lock.
    std::uint64_t greatest(peer_use what) const noexcept { return look().greatest[std::size_t(what)]; }
    /// What all peers together hold now. Takes the lock.
    std::uint64_t held(peer_use what) const noexcept { return look().held[std::size_t(what)]; }
    /// How many charges were refused so far. Any thread, without a lock.
    std::uint64_t refused(peer_use what) const noexcept;
    /// As it was made. Any thread.
    const peer_options& options() const noexcept;
    /// Peers that an operator keeps out, by their addresses. Whoever takes connections asks it before it charges a peer, and refuses
    /// with refused::connection_evicted.
    kept_out& evicted() noexcept { return evicted_; }

private:
    friend class peer_charge;
    struct impl;
    struct peer;
    static bool take(impl& all, peer& p, peer_use what, std::uint64_t amount, std::uint64_t most) noexcept;
    kept_out evicted_;
    std::unique_ptr<impl> impl_;
};

/// Something that a peer holds. Move-only; false if it is none, or was refused. Given back when it goes, on any thread.
class peer_charge {
public:
    peer_charge() noexcept = default;
    peer_charge(peer_charge&& other) noexcept
        : all_(other.all_),
          peer_(std::exchange(other.peer_, nullptr)),
          what_(other.what_),
          amount_(other.amount_)
    {
    }
    peer_charge& operator=(peer_charge&& other) noexcept
    {
        std::swap(all_, other.all_);
        std::swap(peer_, other.peer_);
        std::swap(what_, other.what_);
        std::swap(amount_, other.amount_);
        return *this;
    }
    ~peer_charge() { give_back(); }
    /// Whether the peer was charged: false is a refusal.
    explicit operator bool() const noexcept { return peer_ != nullptr; }
    /// Charges the same peer with something more, which may outlive this. No lock, no allocation. `*this` is true.
    peer_charge also(peer_use what, std::uint64_t amount, std::uint64_t most) const noexcept;
    /// Before its end.
    void give_back() noexcept;

private:
    friend class peer_shares;
    peer_charge(peer_shares::impl& all, peer_shares::peer& p, peer_use what, std::uint64_t amount) noexcept
        : all_(&all), peer_(&p), what_(what), amount_(amount)
    {
    }
    peer_shares::impl* all_ = nullptr;
    peer_shares::peer* peer_ = nullptr;
    peer_use what_ = peer_use::handshakes;
    std::uint64_t amount_ = 0;
};

/// Registers what `s` knows, without a label that names peers. `s` outlives what it returns. Any thread.
metric_registrations expose(metric_registry& registry, const peer_shares& s);

} // namespace verbena

#pragma GCC visibility pop
