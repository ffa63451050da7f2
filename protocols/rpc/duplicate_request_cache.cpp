// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rpc/duplicate_request_cache.hpp>

#include <verbena/core/siphash.hpp>
#include <verbena/protocols/rpc/message.hpp>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <string_view>
#include <utility>

namespace verbena::rpc {
namespace {

constexpr std::uint64_t mix(std::uint64_t h, std::uint64_t word) noexcept
{
    h = (h ^ word) * 0x9e3779b97f4a7c15;
    return h ^ (h >> 29);
}

// As the processor orders bytes: no other one sees the sum.
std::uint64_t word_at(const std::byte* bytes) noexcept
{
    std::uint64_t word;
    std::memcpy(&word, bytes, sizeof word);
    return word;
}

// Four sums side by side, since each step of one waits for the multiplication before it.
std::uint64_t checksum_of(std::span<const std::byte> bytes) noexcept
{
    constexpr std::size_t sums = 4, block = sums * 8;
    std::uint64_t h = bytes.size();
    if (bytes.size() >= block) {
        std::array<std::uint64_t, sums> parts{h, 1, 2, 3};
        for (; bytes.size() >= block; bytes = bytes.subspan(block)) {
            for (std::size_t i = 0; i < sums; ++i)
                parts[i] = mix(parts[i], word_at(bytes.data() + 8 * i));
        }
        for (const std::uint64_t part : parts)
            h = mix(h, part);
    }
    for (; bytes.size() >= 8; bytes = bytes.subspan(8))
        h = mix(h, word_at(bytes.data()));
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

// A look at an entry of another call in the same bucket is a wait for memory, since most entries are in none of the
// processor's caches.
constexpr std::size_t buckets_per_place = 4;

struct freed {
    void operator()(void* memory) const noexcept { std::free(memory); }
};

} // namespace

request_key request_key::of(call& c, std::size_t whole)
{
    request_key key;
    key.address = c.from().address;
    key.xid = c.header().xid;
    key.program = c.header().program;
    key.version = c.header().version;
    key.procedure = c.header().procedure;
    key.user = c.who().is_anonymous() ? UINT32_MAX : c.who().uid();
    // Not the length of what is in hand: how much that is of a large call depends on where it began in the stream.
    key.argument_length = c.args().unread();
    const auto in_hand = c.args().rest();
    const std::size_t most = key.argument_length <= whole ? whole : first_bytes;
    key.checksum = checksum_of(in_hand.first(std::min(in_hand.size(), most)));
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
    std::vector<xdr::payload_item> items; // in it
    intrusive_list<visit::queued> waiting;
    std::size_t waiting_count = 0;
    std::size_t room = 0; // of `reply` and `items`, as its part has counted it
};

duplicate_request_options duplicate_request_options::within(std::size_t bytes) noexcept
{
    constexpr std::size_t heap_overhead =
        24 + buckets_per_place * sizeof(void*); // of an entry and its reply, and its buckets
    constexpr std::size_t one = sizeof(duplicate_request_cache::entry) + usual_reply + heap_overhead;
    duplicate_request_options o;
    o.max_entries = std::min(bytes / one, most_entries);
    o.max_bytes = o.max_entries * usual_reply;
    return o;
}

// The entries of some peers.
class duplicate_request_cache::part {
public:
    /// With what it has for itself, and as much of what is `common` to so many parts as it gets.
    part(const siphash_key& secret, std::size_t parts, const duplicate_request_options& options,
         const share& own, common_share& common, const std::vector<std::unique_ptr<part>>& all)
        : secret_(secret),
          is_shared_(parts > 1),
          all_(all),
          options_(options),
          usual_(options.max_reply != 0 ? duplicate_request_options::usual_reply : 0),
          own_(own),
          common_(common),
          // Calls that wait for their turn are few, and of no age.
          bucket_count_(
              (usual_ != 0 ? buckets_per_place : 1) *
              std::max<std::size_t>(own.places + common.places / std::max<std::size_t>(parts, 4), 16)),
          // calloc() leaves pages out of memory until an entry stands in them: of a part that is not used, all.
          buckets_(static_cast<entry**>(std::calloc(bucket_count_, sizeof(entry*))))
    {
        if (!buckets_)
            throw std::bad_alloc();
    }
    part(const part&) = delete;
    ~part()
    {
        for (intrusive_list<entry>* list : {&unused_, &in_progress_, &answered_}) {
            while (entry* e = list->pop_front())
                delete e;
        }
    }

    const duplicate_request_stats& stats() const noexcept { return stats_; }

    /// Decides about `v`, or queues it behind the call in progress and returns false.
    bool look(visit& v)
    {
        const std::uint64_t h = hash(secret_, v.key_);
        __builtin_prefetch(&bucket(h));
        const auto held = lock();
        const time_point now = v.here_.now();
        expire(now);
        for (entry* e = bucket(h); e != nullptr; e = e->next_in_bucket) {
            if (e->hash != h || e->key != v.key_) {
                stats_.passed.add();
                continue;
            }
            if (e->answered) {
                stats_.replayed.add();
                v.state_ = state::answered;
                v.reply_ = e->reply;
                v.items_ = e->items;
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
        entry* e = take(now);
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
        fetch_oldest();
        return true;
    }

    /// Ends the call in progress of `by`; an empty reply is none to remember: then the first that waits runs the call, and
    /// the others wait for that one.
    void finish(visit& by, std::span<const std::byte> reply, std::span<const xdr::payload_item> items)
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
        while (visit::queued* q = e.waiting.front()) {
            visit& v = q->owner;
            try {
                v.reply_.assign(reply.begin(), reply.end());
                v.items_.assign(items.begin(), items.end());
                v.state_ = state::answered;
                stats_.replayed.add();
            } catch (const std::bad_alloc&) {
                v.state_ = state::dropped; // its caller asks again; but it must not wait for ever
                stats_.dropped.add();
            }
            (void)e.waiting.pop_front();
            resume(v, by.here_);
        }
        e.waiting_count = 0;
        if (reply.size() > options_.max_reply)
            return release(e);
        const time_point now = by.here_.now();
        if (!grow(e, std::max(reply.size(), usual_) + items.size_bytes(), now)) {
            stats_.evicted.add();
            return release(e);
        }
        e.reply.assign(reply.begin(), reply.end());
        e.items.assign(items.begin(), items.end());
        stats_.remembered.add();
        e.answered = true;
        e.when = now;
        answered_.push_back(e);
        stats_.bytes.add(bytes_of(e));
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
            v.go_on();
        else // whose thread suspends it before it looks at messages
            v.here_.post_remote(v);
    }

    entry*& bucket(std::uint64_t h) noexcept { return buckets_[(h >> 32) * bucket_count_ >> 32]; }

    // In a full table the next call releases the oldest entry, and the call after that the second one. By then both have left
    // the processor's caches. So each call fetches the second entry, and by the hash of the first one what that points to.
    void fetch_oldest() noexcept
    {
        entry* const oldest = answered_.front();
        if (oldest == nullptr)
            return;
        __builtin_prefetch(&bucket(oldest->hash), 1);
        __builtin_prefetch(oldest->reply.data(), 1);
        const entry* const second = answered_.next(*oldest);
        if (second == nullptr)
            return;
        constexpr std::size_t cache_line = 64;
        const auto* const begin = reinterpret_cast<const char*>(second);
        for (std::size_t at = 0; at < sizeof(entry); at += cache_line)
            __builtin_prefetch(begin + at, 1);
        __builtin_prefetch(begin + sizeof(entry) - 1, 1);
    }

    static std::int64_t bytes_of(const entry& e) noexcept
    {
        return static_cast<std::int64_t>(e.reply.size() + std::span(e.items).size_bytes());
    }

    void expire(time_point now) noexcept
    {
        // Two for each new one: it catches up, and no call pays for all.
        for (int i = 0; i < 2; ++i) {
            entry* oldest = answered_.front();
            if (oldest == nullptr || now - oldest->when < options_.lifetime)
                return;
            release(*oldest);
            give_back();
        }
    }

    // Another part may need the place.
    void give_back() noexcept
    {
        if (made_ > own_.places)
            unmake();
    }

    void unmake() noexcept
    {
        delete unused_.pop_front();
        give_room(usual_);
        if (made_-- > own_.places)
            common_.places.fetch_add(1, std::memory_order_relaxed);
    }

    static bool take_from(std::atomic<std::size_t>& from, std::size_t count) noexcept
    {
        std::size_t left = from.load(std::memory_order_relaxed);
        while (left >= count) {
            if (from.compare_exchange_weak(left, left - count, std::memory_order_relaxed))
                return true;
        }
        return false;
    }

    std::size_t beyond_own(std::size_t bytes) const noexcept { return bytes - std::min(bytes, own_.bytes); }
    std::size_t room() const noexcept { return static_cast<std::size_t>(stats_.room.value()); }

    bool take_room(std::size_t bytes) noexcept
    {
        const std::size_t more = beyond_own(room() + bytes) - beyond_own(room());
        if (more != 0 && !take_from(common_.bytes, more))
            return false;
        stats_.room.add(static_cast<std::int64_t>(bytes));
        return true;
    }

    void give_room(std::size_t bytes) noexcept
    {
        common_.bytes.fetch_add(beyond_own(room()) - beyond_own(room() - bytes), std::memory_order_relaxed);
        stats_.room.add(-static_cast<std::int64_t>(bytes));
    }

    // For a reply that is longer than usual others go, the oldest first, with their places.
    bool grow(entry& e, std::size_t needed, time_point now) noexcept
    {
        const std::size_t more = std::max(needed, e.room) - e.room;
        const auto may = [&] { return more == 0 || take_room(more); };
        if (!may() && !others_make_room(now, may)) {
            do {
                if (unused_.empty()) {
                    if (answered_.empty())
                        return false;
                    stats_.evicted.add();
                    release(*answered_.front());
                }
                unmake();
            } while (!may());
        }
        e.room += more;
        return true;
    }

    // Of another part, whose thread holds that one's lock and so only tries for this one: what is old here is of use there.
    // Nobody else looks at it if its peers have gone.
    void make_room(time_point now) noexcept
    {
        const std::unique_lock<std::mutex> held(mutex_, std::try_to_lock);
        const auto has_more = [this] { return made_ > own_.places || room() > own_.bytes; };
        for (int i = 0; held && i < most_given_back && has_more(); ++i) {
            if (unused_.empty() || made_ <= own_.places) {
                entry* oldest = answered_.front();
                if (oldest == nullptr || now - oldest->when < options_.lifetime)
                    return;
                release(*oldest);
            }
            give_back();
        }
    }

    template<class May>
    bool others_make_room(time_point now, May may) noexcept
    {
        if (now < ask_again_)
            return false;
        for (const auto& other : all_) {
            if (other.get() != this)
                other->make_room(now);
        }
        if (may())
            return true;
        ask_again_ = now + std::chrono::seconds(1);
        return false;
    }

    bool may_make_one() noexcept
    {
        if (!take_room(usual_))
            return false;
        if (made_ < own_.places || take_from(common_.places, 1))
            return true;
        give_room(usual_);
        return false;
    }

    entry* take(time_point now)
    {
        const auto may = [this] { return may_make_one(); };
        if (unused_.empty() && (may() || others_make_room(now, may))) {
            auto made = std::make_unique<entry>();
            made->room = usual_;
            unused_.push_back(*made.release());
            ++made_;
        }
        if (unused_.empty() && !answered_.empty()) {
            stats_.evicted.add();
            release(*answered_.front());
        }
        // So that one that is used again for a longer reply need not grow.
        if (!unused_.empty())
            unused_.front()->reply.reserve(usual_);
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
            stats_.bytes.add(-bytes_of(e));
        e.answered = false;
        // The usual room stays. More would stay with each place that had it once.
        e.reply.clear();
        if (e.reply.capacity() > usual_)
            std::vector<std::byte>().swap(e.reply);
        std::vector<xdr::payload_item>().swap(e.items);
        const std::size_t kept =
            std::max(e.reply.capacity(), usual_) + e.items.capacity() * sizeof(xdr::payload_item);
        give_room(e.room - kept);
        e.room = kept;
        stats_.entries.add(-1);
        unused_.push_back(e);
    }

    static constexpr int most_given_back = 1024; // at once, while others wait for the lock

    const siphash_key& secret_;
    const bool is_shared_; // by several shards
    const std::vector<std::unique_ptr<part>>& all_;
    std::mutex mutex_; // of all below
    const duplicate_request_options options_;
    const std::size_t usual_; // room that a place has for its reply
    const share own_;
    common_share& common_;
    const std::size_t bucket_count_;
    const std::unique_ptr<entry*[], freed> buckets_;
    std::size_t made_ = 0;
    time_point ask_again_{};
    intrusive_list<entry> unused_;
    intrusive_list<entry> in_progress_;
    intrusive_list<entry> answered_;
    duplicate_request_stats stats_;
};

duplicate_request_cache::duplicate_request_cache(std::size_t shards, const duplicate_request_options& options,
                                                 random_source& random)
    : secret_(random.key()),
      max_reply_(std::max(options.max_reply, max_success_header_size)),
      common_{shards > 1 ? options.max_entries / 2 : 0, shards > 1 ? options.max_bytes / 2 : 0}
{
    const std::size_t parts = std::max<std::size_t>(shards, 1);
    const share own{(options.max_entries - common_.places) / parts,
                    (options.max_bytes - common_.bytes) / parts};
    duplicate_request_options kept = options;
    kept.max_reply = max_reply_;
    duplicate_request_options in_turn = options;
    in_turn.max_reply = 0;
    for (std::size_t i = 0; i < shards; ++i)
        parts_.push_back(std::make_unique<part>(secret_, shards, kept, own, common_, parts_));
    for (std::size_t i = 0; i < shards; ++i)
        in_turn_.push_back(std::make_unique<part>(secret_, shards, in_turn, share{options.max_in_turn, 0},
                                                  no_more_, in_turn_));
}

duplicate_request_cache::~duplicate_request_cache() = default;

const duplicate_request_stats& duplicate_request_cache::stats(std::size_t part) const noexcept
{
    return parts_[part]->stats();
}

const duplicate_request_stats& duplicate_request_cache::in_turn_stats(std::size_t part) const noexcept
{
    return in_turn_[part]->stats();
}

duplicate_request_cache::part& duplicate_request_cache::part_of(const request_key& key, repeat of_it) noexcept
{
    const auto& parts = of_it == repeat::answered ? parts_ : in_turn_;
    if (parts.size() == 1)
        return *parts.front();
    return *parts[siphash(secret_, std::as_bytes(std::span(key.address))) % parts.size()];
}

duplicate_request_cache::visit::visit(duplicate_request_cache& cache, reactor& here, request_key key,
                                      repeat of_it)
    : part_(cache.part_of(key, of_it)), here_(here), key_(std::move(key))
{
}

duplicate_request_cache::visit::~visit()
{
    if (entry_ != nullptr)
        finish({}, {});
}

bool duplicate_request_cache::visit::look() { return part_.look(*this); }

// The call that this one waited for ended on another shard.
void duplicate_request_cache::visit::deliver() noexcept { go_on(); }

void duplicate_request_cache::visit::go_on()
{
    mark_.clear();
    here_.post(std::exchange(waiting_, {}));
}

void duplicate_request_cache::visit::remember(std::span<const std::byte> reply,
                                              std::span<const xdr::payload_item> items)
{
    assert(entry_ != nullptr);
    finish(reply, items);
}

void duplicate_request_cache::visit::finish(std::span<const std::byte> reply,
                                            std::span<const xdr::payload_item> items)
{
    part_.finish(*this, reply, items);
    entry_ = nullptr;
}

} // namespace verbena::rpc
