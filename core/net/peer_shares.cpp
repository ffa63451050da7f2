// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/net/ip_address.hpp>
#include <verbena/core/net/peer_shares.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <map>
#include <mutex>
#include <new>
#include <vector>

namespace verbena {

namespace {

constexpr std::size_t uses = peer_use_count;

/// What several families tell of one scrape. Each look serves each family once, so that the peers are visited once a scrape.
class shared_look {
public:
    shared_look(const peer_shares& s, unsigned families) noexcept : shares_(s), told_(families, true) {}
    const peer_shares::occupation& for_family(std::size_t number)
    {
        if (told_[number]) {
            last_ = shares_.look();
            told_.assign(told_.size(), false);
        }
        told_[number] = true;
        return last_;
    }

private:
    const peer_shares& shares_;
    peer_shares::occupation last_;
    std::vector<bool> told_;
};

} // namespace

std::string peer_group(std::string_view address, unsigned v6_prefix)
{
    const auto parsed = ip_address::parse(address);
    // A dotted address has one spelling only, so that nothing is written anew: each OPEN of a file on disk asks.
    if (!parsed || (parsed->is_v4() && address.find(':') == std::string_view::npos))
        return std::string(address);
    std::array<std::uint8_t, 16> bytes = parsed->bytes();
    const bool link_local = bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
    if (parsed->is_v4() || link_local)
        return parsed->text();
    for (unsigned bit = v6_prefix; bit < 128; ++bit)
        bytes[bit / 8] &= static_cast<std::uint8_t>(~(0x80U >> bit % 8));
    return ip_address(bytes).text();
}

std::string_view to_string(peer_use u) noexcept
{
    switch (u) {
    case peer_use::handshakes: return "handshakes";
    case peer_use::streams: return "streams";
    case peer_use::rdma_connections: return "rdma_connections";
    case peer_use::rtrs_connections: return "rtrs_connections";
    case peer_use::rtrs_half_made: return "rtrs_half_made";
    case peer_use::rtrs_sessions: return "rtrs_sessions";
    case peer_use::module_connections: return "module_connections";
    case peer_use::memory: return "memory";
    case peer_use::calls_left: return "calls_left";
    case peer_use::count_: break;
    }
    return "";
}

struct peer_shares::peer {
    std::array<std::atomic<std::uint64_t>, uses> used{};
    std::atomic<std::uint64_t> charges{0};
    const std::string* group = nullptr; // its key
};

struct peer_shares::impl {
    peer_options options;
    mutable std::mutex mutex; // of `peers`, and of the last charge of each
    std::map<std::string, peer, std::less<>> peers;
    std::array<std::atomic<std::uint64_t>, uses> refused{};
};

peer_shares::peer_shares(const peer_options& o) : impl_(std::make_unique<impl>()) { impl_->options = o; }

peer_shares::~peer_shares() { assert(impl_->peers.empty() && "the shares of peers outlive their charges"); }

// Adds first what fits only: shards that charge one peer at once never go beyond `most` together.
bool peer_shares::take(impl& all, peer& p, peer_use what, std::uint64_t amount, std::uint64_t most) noexcept
{
    std::atomic<std::uint64_t>& used = p.used[std::size_t(what)];
    std::uint64_t now = used.load(std::memory_order_relaxed);
    do {
        if (amount > most || now > most - amount) {
            all.refused[std::size_t(what)].fetch_add(1, std::memory_order_relaxed);
            return false;
        }
    } while (!used.compare_exchange_weak(now, now + amount, std::memory_order_relaxed));
    return true;
}

peer_charge peer_shares::charge(std::string_view address, peer_use what, std::uint64_t amount,
                                std::uint64_t most) noexcept
{
    impl& all = *impl_;
    try {
        std::string group = peer_group(address, all.options.v6_prefix);
        const std::scoped_lock lock(all.mutex);
        const auto [at, is_new] = all.peers.try_emplace(std::move(group));
        peer& p = at->second;
        p.group = &at->first;
        if (take(all, p, what, amount, most)) {
            p.charges.fetch_add(1, std::memory_order_relaxed);
            return {all, p, what, amount};
        }
        if (is_new)
            all.peers.erase(at);
    } catch (const std::bad_alloc&) {
        all.refused[std::size_t(what)].fetch_add(1, std::memory_order_relaxed);
    }
    return {};
}

peer_charge peer_charge::also(peer_use what, std::uint64_t amount, std::uint64_t most) const noexcept
{
    if (!peer_shares::take(*all_, *peer_, what, amount, most))
        return {};
    // `*this` keeps the peer known meanwhile.
    peer_->charges.fetch_add(1, std::memory_order_relaxed);
    return {*all_, *peer_, what, amount};
}

void peer_charge::give_back() noexcept
{
    peer_shares::peer* const p = std::exchange(peer_, nullptr);
    if (p == nullptr)
        return;
    p->used[std::size_t(what_)].fetch_sub(amount_, std::memory_order_relaxed);
    std::uint64_t charges = p->charges.load(std::memory_order_relaxed);
    while (charges > 1) {
        if (p->charges.compare_exchange_weak(charges, charges - 1, std::memory_order_release,
                                             std::memory_order_relaxed))
            return;
    }
    // The last one, unless charge() finds the peer before the lock is ours: then that one keeps it.
    const std::scoped_lock lock(all_->mutex);
    if (p->charges.fetch_sub(1, std::memory_order_acq_rel) == 1)
        all_->peers.erase(all_->peers.find(*p->group));
}

std::size_t peer_shares::peers() const noexcept
{
    const std::scoped_lock lock(impl_->mutex);
    return impl_->peers.size();
}

peer_shares::occupation peer_shares::look() const noexcept
{
    occupation out;
    const std::scoped_lock lock(impl_->mutex);
    out.peers = impl_->peers.size();
    for (const auto& [group, p] : impl_->peers) {
        for (std::size_t i = 0; i < uses; ++i) {
            const std::uint64_t used = p.used[i].load(std::memory_order_relaxed);
            out.greatest[i] = std::max(out.greatest[i], used);
            out.held[i] += used;
        }
    }
    return out;
}

std::uint64_t peer_shares::refused(peer_use what) const noexcept
{
    return impl_->refused[std::size_t(what)].load(std::memory_order_relaxed);
}

const peer_options& peer_shares::options() const noexcept { return impl_->options; }

metric_registrations expose(metric_registry& registry, const peer_shares& s)
{
    // Collectors run one after the other, under the registry's lock.
    const auto looks = std::make_shared<shared_look>(s, 4);
    const auto is_bytes = [](peer_use u) { return u == peer_use::memory || u == peer_use::calls_left; };
    metric_group group(registry);
    group.add({"verbena_peers", "Peers that have a connection, or hold something else.", metric_type::gauge,
               "peers"},
              [looks](metric_sink& out) { out.value({}, double(looks->for_family(0).peers)); });
    group.add(
        {"verbena_peer_most_held",
         "What the peer that holds most of it holds: connections that say nothing yet, streams, connections "
         "of RPC-over-RDMA, of RTRS and of modules, and of RTRS paths that are half made, and sessions.",
         metric_type::gauge,
         "",
         {"of"},
         uses - 2},
        [looks, is_bytes](metric_sink& out) {
            const auto& now = looks->for_family(1);
            for (std::size_t i = 0; i < uses; ++i) {
                if (!is_bytes(peer_use(i)))
                    out.value({to_string(peer_use(i))}, double(now.greatest[i]));
            }
        });
    const auto add_bytes = [&](std::size_t number, const char* name, const char* help, peer_use what) {
        group.add({name, help, metric_type::gauge, "bytes"}, [looks, number, what](metric_sink& out) {
            out.value({}, double(looks->for_family(number).greatest[std::size_t(what)]));
        });
    };
    add_bytes(2, "verbena_peer_most_memory_bytes",
              "Memory that one peer's sessions hold: the most of any peer.", peer_use::memory);
    add_bytes(
        3, "verbena_peer_most_left_bytes",
        "Memory of one peer's calls that go on after their connections have ended: the most of any peer.",
        peer_use::calls_left);
    group.add({"verbena_peer_refusals_total",
               "What peers were refused since they hold as much of it as one may.",
               metric_type::counter,
               "refusals",
               {"of"},
               uses},
              [&s](metric_sink& out) {
                  for (std::size_t i = 0; i < uses; ++i)
                      out.value({to_string(peer_use(i))}, double(s.refused(peer_use(i))));
              });
    return group.take();
}

} // namespace verbena
