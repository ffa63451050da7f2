// SPDX-License-Identifier: Apache-2.0
// What a state_table holds: clients have owners, owners have states, states are of files.
#pragma once

#include "client_card.hpp"
#include "stateid_table.hpp"

#include <verbena/core/reactor/timer.hpp>
#include <verbena/protocols/files/byte_ranges.hpp>
#include <verbena/protocols/files/state_table.hpp>

#include <array>
#include <cassert>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

namespace verbena::files::detail {

/// Membership in one of several lists at once.
template<class T>
struct member_of : list_hook {
    explicit member_of(T& o) noexcept : owner(o) {}
    T& owner;
};

inline std::string_view text_of(std::span<const std::byte> bytes) noexcept
{
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline std::span<const std::byte> bytes_of(std::string_view text) noexcept
{
    return std::as_bytes(std::span(text.data(), text.size()));
}

enum class state_kind : std::uint8_t { open, lock, delegation, other };
constexpr bool is_recallable(state_kind k) noexcept
{
    return k == state_kind::delegation || k == state_kind::other;
}

/// What a stateid names. Owned by the stateid_table.
struct state_entry {
    state_entry(state_kind k, client_entry& c, owner_entry* o, file_entry& f, std::uint32_t v) noexcept
        : kind(k), via(v), client(c), owner(o), file(&f)
    {
    }
    state_entry(const state_entry&) = delete;
    virtual ~state_entry() = default;

    state_kind kind;
    std::uint32_t seqid = 1;
    std::uint32_t place = 0;
    std::uint32_t tag = 0;
    const std::uint32_t via; // the export by which the client got it
    client_entry& client;
    owner_entry* owner; // nullptr of recallable state
    file_entry* file;   // nullptr of recallable state that was revoked
    member_of<state_entry> of_client{*this};
    member_of<state_entry> of_file{*this};
    member_of<state_entry> of_owner{*this};
};

/// Whether `who` has it, and got it by that export. What it has by another one is like another client's: exported_file.
inline bool is_of(const state_entry& s, client_id who, std::uint32_t via) noexcept;

/// The 16 pairs of access and deny, by access * 4 + deny.
using share_pairs = std::uint16_t;
constexpr unsigned pair_of(share access, share deny) noexcept
{
    return unsigned(access) * 4 + unsigned(deny);
}

struct open_entry final : state_entry {
    open_entry(client_entry& c, owner_entry& o, file_entry& f, std::uint32_t v) noexcept
        : state_entry(state_kind::open, c, &o, f, v)
    {
    }
    share_pairs opened = 0; // that are in effect
    share access = share::none;
    share deny = share::none;
    bool hears_of_locks = false;
    std::array<std::shared_ptr<const storage::open_file>, 2> by; // by which it reads, and writes
    intrusive_list<member_of<lock_entry>> locks;
};

struct lock_entry final : state_entry {
    lock_entry(client_entry& c, owner_entry& o, file_entry& f, std::uint32_t v, open_entry* by) noexcept
        : state_entry(state_kind::lock, c, &o, f, v), open(by)
    {
        if (by != nullptr)
            by->locks.push_back(of_open);
    }
    open_entry* const open; // nullptr: its owner locks without an open, and nobody knows its stateid
    byte_ranges ranges;
    std::optional<time_point> denies_from; // of a host's: when it first denied what it has since
    member_of<lock_entry> of_open{*this};
};

/// What its client gives back when it is asked to, or loses. A delegation, or of a recallable_kind.
struct recallable_entry : state_entry {
    recallable_entry(state_kind k, client_entry& c, file_entry& f, std::uint32_t v) noexcept
        : state_entry(k, c, nullptr, f, v)
    {
    }
    /// Whether it has to go before another client's `op`.
    virtual bool is_against(operation op) const noexcept = 0;
    bool is_recalled = false;
    // Or it was recalled for who is to have the file likewise, and for such as ask for no rest, and for nobody else.
    bool leaves_rest = true;
    time_point recalled{}; // when
    time_point deadline{}; // to return it; of one that is revoked: when it was
    member_of<recallable_entry> by_deadline{*this};
    bool is_revoked() const noexcept { return file == nullptr; }
};

struct delegation_entry final : recallable_entry {
    delegation_entry(client_entry& c, file_entry& f, std::uint32_t v, delegation_type t,
                     std::optional<std::uint64_t> ch) noexcept
        : recallable_entry(state_kind::delegation, c, f, v), type(t), change(ch)
    {
    }
    bool is_against(operation op) const noexcept override { return conflicts(type, op); }
    delegation_type type;
    std::shared_ptr<const storage::open_file> by; // of the open that it came with
    std::optional<std::uint64_t> change;          // of the file, as it was granted
    std::uint64_t told = 0;    // the largest change attribute that others saw behind an answer of the holder
    bool was_modified = false; // the last of these answers said that it had changed the file
    // Under a lease the holder's own writes are in the way of it, too: they would break the lease, and from then on local writers are not seen.
    enum class lease_state : std::uint8_t {
        none,     // nobody else may change the file: there is no need
        reserved, // the client has not heard of the delegation yet
        unwanted, // likewise, and somebody has asked for the file
        held,
    } leased = lease_state::none;
    bool is_reserved() const noexcept
    {
        return leased == lease_state::reserved || leased == lease_state::unwanted;
    }
    std::unique_ptr<storage::file_lease>
        lease; // while it is held, and the delegation is neither back nor revoked
};

/// What a client has of a kind, and what of that is being fenced. Lives as long as its client, or one of its fences.
struct kind_use {
    kind_use(std::shared_ptr<client_card> c, recallable_kind& o)
        : card(std::move(c)), client(card->id), key(card->key), of(o)
    {
    }
    const std::shared_ptr<client_card> card;
    const client_id client;
    const std::string& key;
    recallable_kind& of;
    std::size_t held = 0, fences = 0;                // those that wait, too
    std::size_t running = 0;                         // of these, that have a place
    intrusive_list<member_of<other_entry>> unfenced; // what it has, but for what is being fenced already
    intrusive_list<member_of<fence_entry>> waiting;
    member_of<kind_use> in_turn{*this}; // while it has fences that wait, and may have one more place
};

/// What is gone, or is about to go, while something may still come of it. Made with what it is of, so that its
/// beginning can't fail. Its file is pinned.
struct fence_entry {
    fence_entry(std::shared_ptr<kind_use> u, file_entry& f) noexcept : use(std::move(u)), file(f) {}
    const std::shared_ptr<kind_use> use;
    file_entry& file;
    lost_state what;
    lock_type type = lock_type::read;
    time_point begun{}, started{};
    bool is_unshared = false; // other_entry::has_unshared
    bool has_place = false;   // it runs, and others wait for its place
    member_of<fence_entry> of_file{*this}, by_age{*this}, by_turn{*this};
};

inline lock_type type_of(const std::array<byte_ranges, 2>& held) noexcept
{
    return held[1].empty() ? lock_type::read : lock_type::write;
}

struct other_entry final : recallable_entry {
    other_entry(client_entry& c, file_entry& f, std::uint32_t v, std::shared_ptr<kind_use> u,
                std::unique_ptr<fence_entry> e) noexcept
        : recallable_entry(state_kind::other, c, f, v), of(u->of), use(std::move(u)), fence(std::move(e))
    {
    }
    lock_type type() const noexcept { return fence != nullptr ? type_of(held) : fenced_type; }
    bool is_against(operation op) const noexcept override
    {
        return of.conflicts(type(), op) || (tells_holes && of.hole_conflicts(op)) ||
               (has_unshared && of.unshared_conflicts(op));
    }
    bool is_against_holder(operation op) const noexcept
    {
        return of.conflicts_with_holder(type(), op) || (has_unshared && of.unshared_conflicts(op));
    }
    /// Whether it may be about some of these bytes.
    bool has_some_of(const byte_range& bytes) const noexcept
    {
        return fence == nullptr || !held[0].overlapping(bytes).empty() || !held[1].overlapping(bytes).empty();
    }
    /// Whether it has to go before another client gets what `kind` calls `type` of these bytes.
    bool excludes(const recallable_kind& kind, lock_type type, const byte_range& bytes) const noexcept;
    recallable_kind& of;
    const std::shared_ptr<kind_use> use;
    std::array<byte_ranges, 2> held;    // to read, and to write as well
    std::unique_ptr<fence_entry> fence; // nullptr: it is being fenced, and has `held`
    lock_type fenced_type = lock_type::read;
    bool tells_holes = false;
    bool has_unshared = false;
    bool ends_with_last_close = false;
    bool has_lapsed = false; // its client's lease was over, for which it was recalled
    std::size_t looks = 0;   // whose client may learn of a hole
    member_of<other_entry> unfenced{*this};
    member_of<other_entry> to_fence{*this}; // while it is recalled and not being fenced
};
inline bool other_entry::excludes(const recallable_kind& kind, lock_type type,
                                  const byte_range& bytes) const noexcept
{
    for (const lock_type mine : {lock_type::read, lock_type::write})
        if (of.excludes(mine, kind, type) &&
            (fence == nullptr || !held[std::size_t(mine)].overlapping(bytes).empty()))
            return true;
    return false;
}

/// An open owner or a lock owner. Lives as long as it has states.
struct owner_entry {
    inline owner_entry(client_entry& c, bool l, std::string_view n, std::uint64_t h);
    client_entry& client;
    const bool locks;
    const std::uint64_t hash; // of the name, by a key that clients don't know
    const std::string name;
    const bool is_counted; // in client_card::owners
    intrusive_list<member_of<state_entry>> states;
};

struct owner_key {
    std::uint64_t hash;
    bool locks;
    std::string_view name;
    friend bool operator==(const owner_key&, const owner_key&) = default;
};
struct owner_hash {
    using is_transparent = void;
    std::size_t operator()(const owner_key& k) const noexcept { return k.hash * 2 + k.locks; }
    std::size_t operator()(const std::unique_ptr<owner_entry>& o) const noexcept
    {
        return o->hash * 2 + o->locks;
    }
};
struct owner_equal {
    using is_transparent = void;
    static owner_key key(const owner_key& k) noexcept { return k; }
    static owner_key key(const std::unique_ptr<owner_entry>& o) noexcept
    {
        return {o->hash, o->locks, o->name};
    }
    bool operator()(const auto& a, const auto& b) const noexcept { return key(a) == key(b); }
};

/// Somebody who waits for a lock.
struct wait_entry {
    wait_entry(client_entry& c, file_entry& f, std::uint32_t v, std::span<const std::byte> o,
               const byte_range& r, lock_type t)
        : client(c), file(f), owner(text_of(o)), via(v), bytes(r), type(t)
    {
    }
    client_entry& client;
    file_entry& file;
    const std::string owner;
    std::uint32_t via; // the export by which it asked last
    byte_range bytes;
    lock_type type;
    bool is_told = false;
    bool is_local = false;    // it waits for a process of this host
    std::uint64_t number = 0; // of this wait; later ones of a file have greater ones
    bool to_look = false;     // at it, as bytes came free
    time_point until{};       // what it was told holds; else, it waits if it does not ask again
    member_of<wait_entry> of_client{*this};
    member_of<wait_entry> of_file{*this};
    member_of<wait_entry> by_end{*this};
};

/// What a client has of the files of one home.
struct client_entry {
    explicit client_entry(std::shared_ptr<client_card> c) noexcept
        : shared(std::move(c)), card(*shared), id(card.id), lapses(card.lapses)
    {
    }
    const std::shared_ptr<client_card> shared;
    client_card& card;
    const client_id id;
    unsigned lapses;                             // of the card, that the table has looked at
    std::vector<std::shared_ptr<kind_use>> uses; // one of each kind that it had something of
    member_of<client_entry> in_way{*this};
    time_point in_way_from{}; // of one in that list: its state is taken then
    intrusive_list<member_of<state_entry>> states;
    intrusive_list<member_of<wait_entry>> waiting;
    intrusive_list<pending_open::of_client> opening;
    std::unordered_set<std::unique_ptr<owner_entry>, owner_hash, owner_equal> owners;
};

inline owner_entry::owner_entry(client_entry& c, bool l, std::string_view n, std::uint64_t h)
    : client(c), locks(l), hash(h), name(n), is_counted(c.card.hears_by_stateids())
{
}

inline bool is_of(const state_entry& s, client_id who, std::uint32_t via) noexcept
{
    return s.client.id == who && s.via == via;
}

struct file_entry {
    file_entry(const storage::handle& h, std::uint64_t sum) noexcept : handle(h), hash(sum) {}
    bool has_nothing() const noexcept { return states == 0 && pins == 0; }

    const storage::handle handle;
    const std::uint64_t hash;
    std::uint32_t states = 0;               // opens, locks, recallable ones
    std::uint32_t pins = 0;                 // those in make_way(), pending opens, waits for locks, fences
    std::uint32_t asking = 0;               // in make_way()
    std::uint32_t others = 0;               // of `recallables`: of other kinds than delegations
    std::uint32_t lockers = 0, waiting = 0; // in `locks` and `waits`
    std::uint32_t ranges = 0;               // of all in `locks`
    bool local_sought = false;
    bool is_let_go =
        false; // owners have locks here that the file system does not have: its export is suspended
    bool has_new_wait = false;                         // for a local process, which is looked after soon
    std::array<std::uint32_t, 2> accesses{}, denies{}; // opens, pending ones too, by read and write
    std::uint32_t cuts = 0;                            // by opens that are begun
    intrusive_list<member_of<state_entry>> opens, locks, recallables; // of locks those that have ranges
    intrusive_list<member_of<fence_entry>> fences;
    intrusive_list<pending_open> pending;
    intrusive_list<member_of<wait_entry>> waits; // in the order of asking
    // Locks of the file system: nullptr where it has none, or nothing is locked or pending, nor waits for a local
    // process. Locks that it is being asked for are pending. Who awaits one of its tasks shares it.
    std::shared_ptr<storage::local_locks> local;
    std::uint64_t watch = 0;              // the task that asks for those who wait; 0: there is none
    time_point next_look{};               // its, at the latest
    std::uint64_t local_calls = 0;        // of lock() and keep()
    std::optional<byte_range> unlocked;   // that `local` has not heard of
    member_of<file_entry> to_keep{*this}; // while that is for want of memory
    intrusive_list<pending_lock> pending_locks;
    member_of<file_entry> to_look{*this}; // while not all waiters were looked at since bytes came free
    member_of<file_entry> to_tell{*this}; // while bytes of it came free and its waiters have not heard
    intrusive_list<verbena::detail::waiter> waiters;
};

/// The first delegation of the file; one to write is alone.
inline delegation_entry* delegation_of(file_entry& f) noexcept
{
    for (auto* m = f.recallables.front(); m != nullptr; m = f.recallables.next(*m))
        if (m->owner.kind == state_kind::delegation)
            return static_cast<delegation_entry*>(&m->owner);
    return nullptr;
}

/// What owners have locked within `bytes`, in order. Where one has locked to write, nobody else has locked at all.
std::vector<storage::lock_range> held_of(file_entry& f, const byte_range& bytes);

struct file_hash {
    using is_transparent = void;
    std::size_t operator()(const std::unique_ptr<file_entry>& f) const noexcept { return f->hash; }
    std::size_t operator()(const std::pair<std::uint64_t, const storage::handle*>& k) const noexcept
    {
        return k.first;
    }
};
struct file_equal {
    using is_transparent = void;
    static const storage::handle& key(const std::unique_ptr<file_entry>& f) noexcept { return f->handle; }
    static const storage::handle& key(const std::pair<std::uint64_t, const storage::handle*>& k) noexcept
    {
        return *k.second;
    }
    bool operator()(const auto& a, const auto& b) const noexcept { return key(a) == key(b); }
};
struct file_set : std::unordered_set<std::unique_ptr<file_entry>, file_hash, file_equal> {};

/// Files that had a recall lately: two Bloom filters that take turns, so that one is forgotten after one to two times `rest`.
class recent_recalls {
public:
    explicit recent_recalls(duration rest) noexcept : rest_(rest) {}
    void add(std::uint64_t hash, time_point now) noexcept;
    bool contains(std::uint64_t hash, time_point now) noexcept;

private:
    static constexpr std::size_t bits = 8192;
    void turn(time_point now) noexcept;
    duration rest_;
    time_point turned_{};
    unsigned current_ = 0;
    std::array<std::array<std::uint64_t, bits / 64>, 2> filters_{};
};

/// `co_await changed(list, until)`: until somebody wakes the list, or a time. False if the wait was stopped.
class [[nodiscard]] change_awaiter : timer {
public:
    change_awaiter(intrusive_list<verbena::detail::waiter>& list, time_point until, const char* text) noexcept
        : list_(list), until_(until), text_(text)
    {
    }
    bool await_ready() const noexcept { return false; }
    template<class Promise>
    bool await_suspend(std::coroutine_handle<Promise> h)
    {
        if (!waiter_.suspend(list_, h, wait_kind::other, text_))
            return false;
        if (until_ != time_point::max())
            waiter_.shard().timers().arm(*this, until_);
        return true;
    }
    bool await_resume() noexcept
    {
        cancel();
        return !waiter_.stopped();
    }

private:
    void on_timer() noexcept override
    {
        if (waiter_.is_linked())
            waiter_.wake();
    }
    intrusive_list<verbena::detail::waiter>& list_;
    time_point until_;
    const char* text_;
    verbena::detail::waiter waiter_;
};

/// An owner's open of a file, its locks by an open or by none, a client's delegation of a file, what it has of another
/// kind. By each export apart, but for locks: those by an open are by its export, and a host's owner is the same by all.
struct state_key {
    const void* whose; // owner_entry; client_entry of recallable state
    const void* of;    // file_entry; state_entry of the open that locks are by
    std::uint32_t via; // 0 of locks
    const recallable_kind* kind = nullptr;
    friend bool operator==(const state_key&, const state_key&) = default;
};
struct state_hash {
    using is_transparent = void;
    std::size_t operator()(const state_key& k) const noexcept
    {
        return std::size_t((std::uintptr_t(k.whose) * 0x9e3779b97f4a7c15) ^ (std::uintptr_t(k.of) >> 4) ^
                           std::uintptr_t(k.kind) ^ (std::uint64_t(k.via) << 32));
    }
    std::size_t operator()(const state_entry* s) const noexcept { return (*this)(key(s)); }
    static state_key key(const state_entry* s) noexcept
    {
        if (s->kind == state_kind::lock)
            return of_locks(*s->owner, static_cast<const lock_entry*>(s)->open, *s->file);
        if (s->kind == state_kind::other)
            return {&s->client, s->file, s->via, &static_cast<const other_entry*>(s)->of};
        return {s->owner != nullptr ? static_cast<const void*>(s->owner) : &s->client, s->file, s->via};
    }
    // By no open where `by` is nullptr.
    static state_key of_locks(const owner_entry& o, const open_entry* by, const file_entry& f) noexcept
    {
        if (by == nullptr)
            return {&o, &f, 0};
        return {&o, static_cast<const state_entry*>(by), 0};
    }
};
struct state_equal {
    using is_transparent = void;
    static state_key key(const state_key& k) noexcept { return k; }
    static state_key key(const state_entry* s) noexcept { return state_hash::key(s); }
    bool operator()(const auto& a, const auto& b) const noexcept { return key(a) == key(b); }
};

} // namespace verbena::files::detail

namespace verbena::files {

struct state_table::obstacle {
    enum class kind : std::uint8_t {
        none,
        courtesy,  // `client`, whose lease is over
        overdue,   // `id` was not returned in time
        recalled,  // what is to be returned until `until`
        operation, // an open that is begun, or a fence: its end wakes
    } what = kind::none;
    client_id client = nobody;
    stateid id;
    time_point until = time_point::max();
};

/// Keeps the entry of a file while something is awaited.
struct state_table::pinned {
    pinned(state_table& t, detail::file_entry& f) noexcept : table(t), file(f) { ++file.pins; }
    pinned(const pinned&) = delete;
    ~pinned()
    {
        --file.pins;
        table.release_file(file);
    }
    state_table& table;
    detail::file_entry& file;
};

struct state_table::shortage {
    limited what;
    limit_of whose;
};

/// Of tend(): fences begin at once where it is told to stop, whatever it waits for.
struct state_table::stop_hearer final : stop_listener {
    explicit stop_hearer(state_table& t) noexcept : table(t) {}
    void on_stop() noexcept override { table.wake(table.fencing_); }
    state_table& table;
};

struct state_table::lock_obstacle {
    byte_range bytes;
    lock_type type = lock_type::read;
    detail::client_entry* client = nullptr;
    std::string_view owner;
    detail::lock_entry* lock = nullptr; // that is held
};

/// Where a lock that is asked for would stand.
struct state_table::lock_place {
    detail::client_entry& client;
    detail::file_entry& file;
    std::span<const std::byte> owner;
    detail::open_entry* by;     // nullptr: by its owner alone
    detail::owner_entry* known; // nullptr: of this owner there is none yet
    detail::lock_entry* had;    // nullptr: likewise of these locks
    // may_lock() finds these.
    detail::wait_entry* waits = nullptr;
    std::ptrdiff_t growth = 0;
    bool hears() const noexcept { return by == nullptr || by->hears_of_locks; }
};

/// A file for as long as it is looked at, whether it had an entry or not.
struct state_table::kept_file {
    kept_file(state_table& t, const storage::handle& h) : table(t), file(t.file_of(h)) { ++file.pins; }
    kept_file(const kept_file&) = delete;
    ~kept_file()
    {
        --file.pins;
        table.release_file(file);
    }
    state_table& table;
    detail::file_entry& file;
};

struct state_table::indexes {
    intrusive_list<detail::member_of<detail::client_entry>>
        in_way; // courtesy clients: in that of a local process, which can't take their state itself
    // By their deadlines. Kinds may have times of their own, so they stand apart.
    intrusive_list<detail::member_of<detail::recallable_entry>> recalled, recalled_others;
    intrusive_list<detail::member_of<detail::other_entry>> to_fence; // of recalled_others, in their order
    intrusive_list<detail::member_of<detail::fence_entry>> fences, late_fences; // the oldest first
    intrusive_list<detail::member_of<detail::fence_entry>>
        placed;                                                // those that have a place, the first one first
    intrusive_list<detail::member_of<detail::kind_use>> turns; // whose fences wait
    intrusive_list<detail::member_of<detail::wait_entry>> told, untold; // those that end first first
    intrusive_list<detail::member_of<detail::file_entry>>
        freed; // as tell_later() has it, by leases that are over
    intrusive_list<detail::member_of<detail::file_entry>> to_look, to_keep; // pinned
    std::unordered_set<detail::state_entry*, detail::state_hash, detail::state_equal> states;
    std::map<std::uint64_t, detail::wait_entry*> waits; // all, by their numbers
};

/// Gives `made` its place, and has `all` find it. Without memory for either there is no such state: one that lies in no
/// list would stay for ever, and hold what it refers to.
template<class All, class Entry>
Entry& enter(detail::stateid_table& places, All& all, std::unique_ptr<Entry> made)
{
    auto& e = static_cast<Entry&>(places.add(std::move(made)));
    try {
        all.insert(&e);
    } catch (...) {
        places.remove(e);
        throw;
    }
    return e;
}

// The operations of `demand` as bits.
constexpr std::uint32_t bit(operation op) noexcept { return std::uint32_t(1) << unsigned(op); }
/// `is_against(op)` of any of these.
template<class Against>
bool is_any(std::uint32_t operations, Against is_against) noexcept
{
    for (unsigned op = 0; op < operation_count; ++op)
        if ((operations >> op & 1) != 0 && is_against(operation(op)))
            return true;
    return false;
}

/// Whether a client's state is no obstacle to `who` but for the time that it takes to have it away.
inline bool gives_way(const detail::client_entry& c, client_id who) noexcept
{
    return c.card.state == client_state::courtesy && c.id != who;
}

/// Beyond so many opens of one file nobody looks whose they are: all of them are taken for others'.
constexpr unsigned most_opens_looked_at = 64;

// The two halves of a share.
constexpr share halves[] = {share::read, share::write};

} // namespace verbena::files
