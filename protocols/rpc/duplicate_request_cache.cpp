// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rpc/duplicate_request_cache.hpp>

#include <verbena/core/siphash.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <functional>
#include <mutex>
#include <random>
#include <string_view>
#include <utility>

namespace verbena::rpc {
namespace {

constexpr std::uint64_t mix(std::uint64_t h, std::uint64_t word) noexcept
{
    h = (h ^ word) * 0x9e3779b97f4a7c15;
    return h ^ (h >> 29);
}

std::uint64_t checksum_of(std::span<const std::byte> bytes) noexcept
{
    std::uint64_t h = bytes.size();
    for (; bytes.size() >= 8; bytes = bytes.subspan(8))
        h = mix(h, xdr::load_u64(bytes.data()));
    for (const std::byte b : bytes)
        h = mix(h, std::to_integer<std::uint64_t>(b));
    return h;
}

// Peers choose all of it, so without a secret they could put thousands of calls into one bucket, which a part's lock is held for.
std::uint64_t hash(const siphash_key& secret, const request_key& key) noexcept
{
    std::array<std::byte, 48> words;
    xdr::encoder out(words);
    out.u64(std::hash<std::string_view>()(key.address));
    out.u32(key.xid);
    out.u32(key.program);
    out.u32(key.version);
    out.u32(key.procedure);
    out.u32(key.user);
    out.u64(key.argument_length);
    out.u64(key.checksum);
    return siphash(secret, out.bytes());
}

siphash_key make_secret()
{
    siphash_key secret;
    std::random_device random;
    for (std::size_t at = 0; at < secret.size(); at += 4)
        xdr::store_u32(secret.data() + at, random());
    return secret;
}

} // namespace

request_key request_key::of(call& c)
{
    request_key key;
    key.address = c.from().address;
    key.xid = c.header().xid;
    key.program = c.header().program;
    key.version = c.header().version;
    key.procedure = c.header().procedure;
    key.user = c.credential() != nullptr ? c.credential()->uid : UINT32_MAX;
    // Not the length of what is in hand: how much that is of a large call depends on where it began in the stream.
    key.argument_length = c.args().unread();
    const auto in_hand = c.args().rest();
    key.checksum = checksum_of(in_hand.first(std::min(in_hand.size(), checked_bytes)));
    return key;
}

// Stands in one bucket, and in one of two lists: in progress, or answered (oldest first).
struct duplicate_request_cache::entry : list_hook {
    request_key key;
    std::uint64_t hash = 0;
    entry* next_in_bucket = nullptr;
    bool answered = false;
    time_point when; // answered
    std::vector<std::byte> reply;
    intrusive_list<visit::queued> waiting;
    std::size_t waiting_count = 0;
};

// Octets of the results of all non-idempotent procedures of NFSv3 but for long handles.
constexpr std::size_t usual_reply = 256;

// The entries of some peers.
class duplicate_request_cache::part {
public:
    part(bool is_shared, const duplicate_request_options& options)
        : is_shared_(is_shared),
          options_(options),
          buckets_(std::bit_ceil(std::max<std::size_t>(options.max_entries, 16)))
    {
    }

    const duplicate_request_stats& stats() const noexcept { return stats_; }

    /// Decides about `v`, or queues it behind the call in progress and returns false.
    bool look(visit& v)
    {
        const auto held = lock();
        const time_point now = v.here_.now();
        expire(now);
        const std::uint64_t h = hash(secret_, v.key_);
        for (entry* e = bucket(h); e != nullptr; e = e->next_in_bucket) {
            if (e->hash != h || e->key != v.key_) {
                stats_.passed.add();
                continue;
            }
            if (e->answered) {
                stats_.replayed.add();
                v.state_ = state::answered;
                v.reply_ = e->reply;
                return true;
            }
            stats_.waited.add();
            if (e->waiting_count == options_.max_waiting) {
                stats_.dropped.add();
                v.state_ = state::dropped;
                return true;
            }
            ++e->waiting_count;
            e->waiting.push_back(v.queued_);
            return false;
        }
        entry* e = take();
        if (e == nullptr) {
            stats_.uncached.add();
            v.state_ = state::uncached;
            return true;
        }
        e->key = v.key_;
        e->hash = h;
        e->answered = false;
        e->next_in_bucket = std::exchange(bucket(h), e);
        in_progress_.push_back(*e);
        v.entry_ = e;
        v.state_ = state::fresh;
        return true;
    }

    /// Ends the call in progress of `by`; an empty reply is none to remember: then the first that waits runs the call, and
    /// the others wait for that one.
    void finish(visit& by, std::span<const std::byte> reply)
    {
        const auto held = lock();
        entry& e = *by.entry_;
        if (reply.empty()) {
            visit::queued* const next = e.waiting.pop_front();
            if (next == nullptr)
                return release(e);
            --e.waiting_count;
            next->owner.entry_ = &e;
            next->owner.state_ = state::fresh;
            return resume(next->owner, by.here_);
        }
        while (visit::queued* q = e.waiting.pop_front()) {
            visit& v = q->owner;
            v.state_ = state::answered;
            stats_.replayed.add();
            v.reply_.assign(reply.begin(), reply.end());
            resume(v, by.here_);
        }
        e.waiting_count = 0;
        if (reply.size() > options_.max_reply)
            return release(e);
        stats_.remembered.add();
        e.reply.assign(reply.begin(), reply.end());
        e.answered = true;
        e.when = by.here_.now();
        answered_.push_back(e);
        stats_.bytes.add(static_cast<std::int64_t>(reply.size()));
        while (stats_.bytes.value() > static_cast<std::int64_t>(options_.max_bytes)) {
            stats_.evicted.add();
            release(*answered_.front());
        }
    }

private:
    // Held for some hundred nanoseconds, so that it is rather tried again than slept for.
    std::unique_lock<std::mutex> lock()
    {
        if (!is_shared_)
            return {};
        for (int i = 0; i < 100; ++i) {
            if (mutex_.try_lock())
                return {mutex_, std::adopt_lock};
        }
        return std::unique_lock(mutex_);
    }

    static void resume(visit& v, const reactor& here)
    {
        if (&v.here_ == &here)
            v.here_.post(std::exchange(v.waiting_, {}));
        else // whose thread suspends it before it looks at messages
            v.here_.post_remote(v);
    }

    entry*& bucket(std::uint64_t h) noexcept { return buckets_[h & (buckets_.size() - 1)]; }

    void expire(time_point now) noexcept
    {
        // Two for each new one: it catches up, and no call pays for all.
        for (int i = 0; i < 2; ++i) {
            entry* oldest = answered_.front();
            if (oldest == nullptr || now - oldest->when < options_.lifetime)
                return;
            release(*oldest);
        }
    }

    entry* take()
    {
        if (unused_.empty() && entries_.size() < options_.max_entries) {
            entries_.push_back(std::make_unique<entry>());
            // So that an entry that is used again for a longer reply need not grow.
            entries_.back()->reply.reserve(usual_reply);
            unused_.push_back(*entries_.back());
        }
        if (unused_.empty() && !answered_.empty()) {
            stats_.evicted.add();
            release(*answered_.front());
        }
        entry* e = unused_.pop_front();
        if (e != nullptr)
            stats_.entries.add(1);
        return e;
    }

    void release(entry& e) noexcept
    {
        entry** at = &bucket(e.hash);
        while (*at != &e)
            at = &(*at)->next_in_bucket;
        *at = e.next_in_bucket;
        if (e.answered)
            stats_.bytes.add(-static_cast<std::int64_t>(e.reply.size()));
        e.answered = false;
        e.reply.clear(); // with its room
        stats_.entries.add(-1);
        unused_.push_back(e);
    }

    const siphash_key secret_ = make_secret();
    const bool is_shared_; // by several shards
    std::mutex mutex_;     // of all below
    const duplicate_request_options options_;
    std::vector<entry*> buckets_;
    std::vector<std::unique_ptr<entry>> entries_;
    intrusive_list<entry> unused_;
    intrusive_list<entry> in_progress_;
    intrusive_list<entry> answered_;
    duplicate_request_stats stats_;
};

duplicate_request_cache::duplicate_request_cache(std::size_t shards, const duplicate_request_options& options)
{
    for (std::size_t i = 0; i < shards; ++i)
        parts_.push_back(std::make_unique<part>(shards > 1, options));
}

duplicate_request_cache::~duplicate_request_cache() = default;

const duplicate_request_stats& duplicate_request_cache::stats(std::size_t part) const noexcept
{
    return parts_[part]->stats();
}

duplicate_request_cache::visit::visit(duplicate_request_cache& cache, reactor& here, request_key key)
    : part_(*cache.parts_[std::hash<std::string_view>()(key.address) % cache.parts_.size()]),
      here_(here),
      key_(std::move(key))
{
}

duplicate_request_cache::visit::~visit()
{
    if (entry_ != nullptr)
        finish({});
}

bool duplicate_request_cache::visit::look() { return part_.look(*this); }

// The call that this one waited for ended on another shard.
void duplicate_request_cache::visit::deliver() noexcept { here_.post(std::exchange(waiting_, {})); }

void duplicate_request_cache::visit::remember(std::span<const std::byte> reply)
{
    assert(entry_ != nullptr);
    finish(reply);
}

void duplicate_request_cache::visit::finish(std::span<const std::byte> reply)
{
    part_.finish(*this, reply);
    entry_ = nullptr;
}

} // namespace verbena::rpc
