// SPDX-License-Identifier: Apache-2.0
// What a state_table should hold, said as simply as can be: lists of opens, a lock for each byte.
#pragma once

#include "require.hpp"

#include <verbena/core/reactor/clock.hpp>
#include <verbena/protocols/files/state_table.hpp>

#include <algorithm>
#include <array>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace verbena::sim {

using namespace files;
using namespace std::chrono_literals;

constexpr unsigned file_count = 3;
constexpr unsigned byte_count = 12;
constexpr unsigned owner_count = 2; // of each client: "0", "1"
constexpr duration lease = 10s, grace_time = 10s, recall_time = 8s, rest = 2s, reserve = 3s, lock_wait = 12s,
                   courtesy = 60s, distrust = 40s;
constexpr unsigned trusted_revocations = 2;

inline storage::handle file_number(unsigned i)
{
    const auto b = std::byte(i + 1);
    return file_key(0, storage::handle({&b, 1}));
}
inline std::string_view owner_name(unsigned i) { return i == 0 ? "0" : "1"; }
inline std::span<const std::byte> owner_bytes(unsigned i)
{
    return std::as_bytes(std::span(owner_name(i).data(), 1));
}
inline unsigned owner_number(std::string_view name) { return name == "0" ? 0 : 1; }

// --- What the model knows

struct m_client {
    std::string key;
    client_id id = nobody;      // nobody: it is not there
    bool is_restarting = false; // and nobody knows whether what it had is there still
    bool is_reclaiming = false; // and does nothing else
    bool complete = false;      // has said "reclaim complete"
    bool expired = false;       // and knows it when it asks
    bool lost = false;          // somebody else may have had what it had: it may not reclaim
    time_point renewed{};
    time_point busy_until{}; // a compound of its runs
    time_point silent_until{};
    struct revocation {
        time_point due, seen; // it was between these
    };
    std::vector<revocation> revocations; // of what it had
    // A host, which has no lease (NLM).
    bool is_host = false, is_monitored = false;
    std::uint32_t start = 1;     // its state number: odd, and another one after each restart of its own
    std::uint32_t locked_by = 0; // the start of which it said that it took what it has
    /// Surely: so many were revoked within the time, and the last of them not longer ago.
    bool is_distrusted(time_point now) const
    {
        for (std::size_t i = trusted_revocations - 1; i < revocations.size(); ++i) {
            const revocation& first = revocations[i + 1 - trusted_revocations];
            if (revocations[i].seen - first.due <= distrust &&
                now < std::max(first.due, revocations[i].due) + distrust)
                return true;
        }
        return false;
    }
    /// Since when its lease runs.
    time_point heard() const noexcept { return std::max(renewed, busy_until); }
};
struct m_open {
    unsigned client, owner, file;
    std::vector<std::pair<share, share>> pairs;
    stateid id;
    share access() const
    {
        share all = share::none;
        for (const auto& p : pairs)
            all = all | p.first;
        return all;
    }
    share deny() const
    {
        share all = share::none;
        for (const auto& p : pairs)
            all = all | p.second;
        return all;
    }
};
struct m_lock {
    static constexpr unsigned no_open = ~0u; // a host's
    unsigned client, owner, file;
    unsigned by; // the open owner whose open it hangs on: by another one the owner has another
    stateid id;  // of a host's: made up, so that each is another one
    std::array<char, byte_count> bytes;
};
struct m_delegation {
    unsigned client, file;
    delegation_type type;
    stateid id;
    bool leased = false;
    bool is_recalled = false, is_revoked = false;
    time_point recalled{};
};
struct m_pending {
    std::unique_ptr<pending_open> at;
    unsigned client, owner, file;
    share access, deny;
    delegation_want want;
    bool cuts = false; // the file, until it is answered
};
/// An operation without an open that has passed, and is not over.
struct m_passage {
    std::unique_ptr<under_way> at;
    unsigned client, file;
    operation op;
    bool in_grace; // what is reclaimed while it runs was held when it began
};
struct m_wait {
    unsigned client, owner, file;
    byte_range bytes;
    lock_type type;
    bool is_told = false;
    time_point until{}; // it has its range, or waits
};
/// Answers what the table should answer.
struct files_model {
    static constexpr unsigned no_client = ~0u;

    static bool is_free(const m_client& c) { return c.id != nobody && !c.is_restarting && !c.is_reclaiming; }
    bool is_courtesy(const m_client& c) const
    {
        return !c.is_host && !c.expired && c.heard() + lease <= clock_.now();
    }
    bool gives_way(unsigned client, unsigned who) const
    {
        return client != who && is_courtesy(clients_[client]);
    }
    void drop(unsigned client)
    {
        std::erase_if(opens_, [&](const m_open& o) { return o.client == client; });
        std::erase_if(locks_, [&](const m_lock& l) { return l.client == client; });
        std::erase_if(delegations_, [&](const m_delegation& d) { return d.client == client; });
        std::erase_if(waits_, [&](const m_wait& w) { return w.client == client; });
        for (m_pending& p : pending_) // a cut of the file goes on
            if (p.client == client)
                p.access = p.deny = share::none;
    }
    unsigned number_of(client_id id) const
    {
        for (unsigned i = 0; i < clients_.size(); ++i)
            if (clients_[i].id == id)
                return i;
        return no_client;
    }
    static unsigned number_of(const storage::handle& h)
    {
        return std::to_integer<unsigned>(h.bytes().back()) - 1;
    }

    enum class lock_answer { free, denied, in_way };
    lock_answer would_lock(unsigned client, unsigned owner, unsigned file, const byte_range& r,
                           lock_type type) const
    {
        bool of_courtesy = false;
        for (const m_lock& l : locks_) {
            if (l.file != file || (l.client == client && l.owner == owner))
                continue;
            for (std::uint64_t i = r.offset; i <= r.last; ++i)
                if (l.bytes[i] != '-' && (type == lock_type::write || l.bytes[i] == 'w')) {
                    if (!gives_way(l.client, client))
                        return lock_answer::denied;
                    of_courtesy = true;
                }
        }
        if (of_courtesy)
            return lock_answer::in_way;
        for (const m_wait& w : waits_)
            if (w.is_told && w.file == file && !(w.client == client && w.owner == owner) &&
                !is_courtesy(clients_[w.client]) && w.bytes.overlaps(r) &&
                (w.type == lock_type::write || type == lock_type::write))
                return lock_answer::denied;
        return lock_answer::free;
    }

    m_wait* find_wait(unsigned client, unsigned owner, unsigned file)
    {
        for (m_wait& w : waits_)
            if (w.client == client && w.owner == owner && w.file == file)
                return &w;
        return nullptr;
    }

    /// Whether nothing of that is under way: it has passed and is not over, or has begun and waits for others to give way.
    bool is_over(unsigned file, share access) const
    {
        const auto is_that = [&](unsigned of, operation op) {
            return of == file && any(access_of(op) & access);
        };
        return std::ranges::none_of(passages_, [&](const m_passage& p) { return is_that(p.file, p.op); }) &&
               std::ranges::none_of(held_up_, [&](const auto& h) { return is_that(h.first, h.second); });
    }
    bool is_changed(unsigned file) const
    {
        return std::ranges::any_of(passages_,
                                   [&](const m_passage& p) { return p.file == file && is_change(p.op); });
    }
    enum class share_answer { free, denied, in_way };
    // `access` and `deny` of somebody against opens; operations against delegations.
    share_answer shares(unsigned who, unsigned file, share access, share deny,
                        const std::vector<operation>& operations) const
    {
        bool of_courtesy = false;
        for (const m_pending& p : pending_)
            if (p.file == file && (any(access & p.deny) || any(deny & p.access))) {
                if (!gives_way(p.client, who))
                    return share_answer::denied;
                of_courtesy = true;
            }
        for (const m_open& o : opens_)
            if (o.file == file && (any(access & o.deny()) || any(deny & o.access()))) {
                if (!gives_way(o.client, who))
                    return share_answer::denied;
                of_courtesy = true;
            }
        if (of_courtesy)
            return share_answer::in_way;
        for (const m_delegation& d : delegations_)
            if (d.file == file && !d.is_revoked)
                for (const operation op : operations)
                    if (d.client != who ? conflicts(d.type, op) : d.leased && breaks_a_lease(op))
                        return share_answer::in_way;
        if (any(deny) && operations.front() <= operation::open_deny_write) {
            for (const m_pending& p : pending_)
                if (p.file == file && p.cuts && any(deny & share::write))
                    return share_answer::in_way;
        }
        return share_answer::free;
    }
    // Also if it is the holder's own.
    static bool breaks_a_lease(operation op)
    {
        return op == operation::open_write || op == operation::write || op == operation::set_size;
    }
    static std::vector<operation> operations_of(share access, share deny, bool cuts)
    {
        std::vector<operation> all;
        if (any(access & share::read))
            all.push_back(operation::open_read);
        if (any(access & share::write))
            all.push_back(operation::open_write);
        if (any(deny & share::read))
            all.push_back(operation::open_deny_read);
        if (any(deny & share::write))
            all.push_back(operation::open_deny_write);
        if (cuts)
            all.push_back(operation::set_size);
        return all;
    }
    m_open* find_open(unsigned client, unsigned owner, unsigned file)
    {
        for (m_open& o : opens_)
            if (o.client == client && o.owner == owner && o.file == file)
                return &o;
        return nullptr;
    }

    static std::size_t ranges_of(const m_lock& l)
    {
        std::size_t n = 0;
        for (unsigned i = 0; i < byte_count; ++i)
            n += l.bytes[i] != '-' && (i == 0 || l.bytes[i - 1] != l.bytes[i]);
        return n;
    }

    static void set(m_lock& l, const byte_range& r, char to)
    {
        for (std::uint64_t i = r.offset; i <= r.last; ++i)
            l.bytes[i] = to;
    }
    static bool is_beside(const m_lock& a, const m_lock& b)
    {
        return a.client == b.client && a.owner == b.owner && a.file == b.file && a.by != b.by;
    }
    std::size_t ranges_of(unsigned client) const
    {
        std::size_t n = 0;
        for (const m_lock& l : locks_)
            n += l.client == client ? ranges_of(l) : 0;
        return n;
    }
    /// Of the client's locks but that one, once its owner has `r` by no other open.
    std::size_t ranges_without(const m_lock& but, const byte_range& r) const
    {
        std::size_t n = 0;
        for (m_lock l : locks_) {
            if (is_beside(l, but))
                set(l, r, '-');
            else if (l.client != but.client || l.id.other == but.id.other)
                continue;
            n += ranges_of(l);
        }
        return n;
    }
    /// The owner has those bytes by no other open. True if it had some.
    bool clear_beside(const m_lock& by, const byte_range& r)
    {
        bool had = false;
        for (m_lock& l : locks_)
            if (is_beside(l, by)) {
                had = had || std::any_of(l.bytes.begin() + r.offset, l.bytes.begin() + r.last + 1,
                                         [](char c) { return c != '-'; });
                set(l, r, '-');
            }
        return had;
    }

    bool has_delegation(unsigned client, unsigned file) const
    {
        return std::any_of(delegations_.begin(), delegations_.end(),
                           [&](const m_delegation& d) { return d.client == client && d.file == file; });
    }

    void nothing_contradicts() const
    {
        for (const m_open& a : opens_)
            for (const m_open& b : opens_)
                if (&a != &b && a.file == b.file)
                    SIM_REQUIRE(!any(a.access() & b.deny()));
        for (const m_lock& a : locks_)
            for (const m_lock& b : locks_)
                if (&a != &b && a.file == b.file)
                    for (unsigned i = 0; i < byte_count; ++i)
                        SIM_REQUIRE((a.bytes[i] == '-' || b.bytes[i] == '-' ||
                                     (a.bytes[i] == 'r' && b.bytes[i] == 'r' && !is_beside(a, b))));
        for (const m_delegation& d : delegations_) {
            if (d.is_revoked)
                continue;
            for (const m_delegation& e : delegations_)
                if (&d != &e && !e.is_revoked && d.file == e.file)
                    SIM_REQUIRE((d.type == delegation_type::read && e.type == delegation_type::read));
            // What is reclaimed to write has its own delegation recalled.
            if (d.leased && !d.is_recalled) {
                for (const m_open& o : opens_)
                    SIM_REQUIRE(!(o.file == d.file && any(o.access() & share::write)));
                for (const m_pending& p : pending_)
                    SIM_REQUIRE(!(p.file == d.file && (any(p.access & share::write) || p.cuts)));
                for (const m_passage& p : passages_)
                    SIM_REQUIRE(!(p.file == d.file && !p.in_grace && any(access_of(p.op) & share::write)));
            }
            for (const m_open& o : opens_)
                if (o.file == d.file && o.client != d.client)
                    SIM_REQUIRE((d.type == delegation_type::read && !any(o.access() & share::write) &&
                                 !any(o.deny() & share::read)));
            for (const m_pending& p : pending_)
                if (p.file == d.file && p.client != d.client)
                    for (const operation op : operations_of(p.access, p.deny, p.cuts))
                        SIM_REQUIRE(!conflicts(d.type, op));
            for (const m_passage& p : passages_)
                if (p.file == d.file && p.client != d.client && !p.in_grace && is_change(p.op))
                    SIM_REQUIRE(!conflicts(d.type, p.op));
            // A lock by an open has that to stand against the delegation.
            for (const m_lock& l : locks_)
                if (l.file == d.file && l.by == m_lock::no_open)
                    for (const char byte : l.bytes)
                        SIM_REQUIRE((byte == '-' || !conflicts(d.type, byte == 'r' ? operation::lock_read
                                                                                   : operation::lock_write)));
        }
        for (const m_passage& p : passages_)
            for (const m_open& o : opens_)
                if (o.file == p.file)
                    SIM_REQUIRE(!any(access_of(p.op) & o.deny()));
        for (const m_pending& p : pending_)
            for (const m_open& o : opens_)
                if (o.file == p.file && p.cuts)
                    SIM_REQUIRE(!any(o.deny() & share::write));
    }

    virtual_clock clock_;
    std::vector<m_client> clients_;
    std::list<m_open> opens_;
    std::list<m_lock> locks_;
    std::list<m_delegation> delegations_;
    std::list<m_wait> waits_; // in the order of asking
    std::vector<m_pending> pending_;
    std::vector<m_passage> passages_;
    std::vector<std::pair<unsigned, operation>> held_up_; // operations on files that have begun
};

} // namespace verbena::sim
