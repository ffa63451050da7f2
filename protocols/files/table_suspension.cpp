// SPDX-License-Identifier: Apache-2.0
// While the file system of an export is let go, and when it comes back (docs/internals/files_locks.md).
#include "entries.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/printable.hpp>
#include <verbena/core/task/sleep.hpp>

#include <algorithm>
#include <cerrno>

namespace verbena::files {

using namespace detail;

namespace {

constexpr byte_range everything{0, byte_range::to_the_end};
// Of the table of files in one go.
constexpr std::size_t buckets_at_once = 256;
// Of a file that is gone.
constexpr std::size_t states_at_once = 128;
// Files of which the end of locks is awaited together.
constexpr std::size_t files_at_once = 64;

bool is_gone(const error& e) noexcept { return e.errno_value() == ESTALE || e == storage::errc::bad_handle; }

void tell_lost(const std::string& text, storage::restored_state& to)
{
    if (to.lost.size() < storage::restored_state::most_told)
        to.lost.push_back(text);
    static log_limiter limit(10, std::chrono::seconds(10));
    log_limited(limit, log_level::warning, "nfs",
                "a client has lost what it had, as the file system of its export was away", {{"what", text}});
}

} // namespace

// Others come and go between the parts. Where the table of files has grown, it is looked at once more.
template<class F>
task<std::deque<storage::handle>> state_table::files_where(std::uint32_t space, F concerns)
{
    std::deque<storage::handle> found;
    std::size_t buckets = files_->bucket_count();
    for (std::size_t at = 0; at < buckets;) {
        for (std::size_t n = 0; n < buckets_at_once && at < buckets; ++n, ++at)
            for (auto one = files_->begin(at); one != files_->end(at); ++one) {
                const auto named = concerns(**one) ? open_file_key((*one)->handle) : std::nullopt;
                if (named && named->space == space)
                    found.push_back((*one)->handle);
            }
        const bool goes_on = co_await sleep_for(duration::zero());
        if (!goes_on)
            break;
        if (files_->bucket_count() != buckets) {
            buckets = files_->bucket_count();
            found.clear();
            at = 0;
        }
    }
    co_return found;
}

// So that its client is told to look what it has, and hears by the stateid that it is gone. A host has none.
void state_table::note_lost(state_entry& s) noexcept
{
    client_card& card = s.client.card;
    client_id forgotten = nobody;
    if (card.is_host || !states_->note_revoked(s, forgotten))
        return;
    ++card.admin_lost;
    ++card.admin_losses;
    if (const auto other = forgotten == nobody ? nullptr : commons_.clients().find(forgotten))
        --other->admin_lost;
}

bool state_table::has_lost(client_id client, const stateid& id) const noexcept
{
    if (client == nobody || states_->revoked_from(id) != client)
        return false;
    const auto card = commons_.clients().find(client);
    return card != nullptr && is_living(*card, true).has_value();
}

bool state_table::has_lost_by_admin(client_id client) const noexcept
{
    const auto card = commons_.clients().find(client);
    return card != nullptr && card->admin_lost > 0;
}

task<void> state_table::let_go_of_local_locks(std::uint32_t space, const std::atomic<bool>& goes_on)
{
    auto finding = files_where(space, [](const file_entry& f) { return f.local != nullptr; });
    const std::deque<storage::handle> files = co_await finding;
    std::vector<std::shared_ptr<storage::local_locks>> going;
    for (std::size_t i = 0; i < files.size() && goes_on; ++i) {
        file_entry* const f = find_file(files[i]);
        if (f != nullptr && f->local != nullptr && !f->is_let_go) {
            going.push_back(f->local);
            ++f->local_calls;
            f->local->keep(everything.offset, everything.last, {});
            f->is_let_go = true;
        }
        if (going.size() < files_at_once && i + 1 != files.size())
            continue;
        for (const auto& locks : going) {
            task<void> settling = locks->settle();
            co_await settling;
        }
        going.clear();
    }
}

task<void> state_table::lock_locally_again(std::uint32_t space, storage::restored_state& to)
{
    auto finding = files_where(space, [](const file_entry& f) { return f.is_let_go; });
    const std::deque<storage::handle> files = co_await finding;
    for (const storage::handle& key : files) {
        file_entry* const f = find_file(key);
        if (f == nullptr || !f->is_let_go || f->local == nullptr)
            continue;
        const pinned kept(*this, *f);
        const std::shared_ptr<storage::local_locks> locks = f->local;
        bool is_asked = true;
        const std::vector<storage::lock_range> ranges = held_of(*f, everything);
        for (const storage::lock_range& bytes : ranges) {
            auto locking = locks->lock(bytes, 0);
            const result<std::optional<storage::local_holder>> got = co_await locking;
            if (got && !*got) {
                ++to.locks;
            } else if (got) {
                const std::int64_t process = (**got).process;
                lose_locks(*f, bytes,
                           "a process of this host has locked them" +
                               (process > 0 ? " (" + std::to_string(process) + ')' : std::string()),
                           to);
            } else if (is_gone(got.error())) {
                lose_locks(*f, bytes, "the file is gone", to);
            } else {
                is_asked = false;
                break;
            }
        }
        if (!is_asked) {
            locks->keep(everything.offset, everything.last, {}); // all or nothing, so that it is begun anew
            ++to.later;
            continue;
        }
        // Some may have been unlocked meanwhile, of which the back end has not heard.
        f->is_let_go = false;
        f->unlocked.reset();
        keep_locally(*f, everything);
    }
}

void state_table::lose_locks(file_entry& f, const storage::lock_range& bytes, const std::string& why,
                             storage::restored_state& to)
{
    bool are_some_gone = false;
    for (auto* m = f.locks.front(); m != nullptr;) {
        lock_entry& l = static_cast<lock_entry&>(m->owner);
        m = f.locks.next(*m);
        if (l.ranges.overlapping({bytes.offset, bytes.last}).empty())
            continue;
        tell_lost("locks of client " + printable(l.client.card.key) + ", bytes " +
                      std::to_string(bytes.offset) + " to " +
                      (bytes.last == byte_range::to_the_end ? "the end" : std::to_string(bytes.last)) + ": " +
                      why,
                  to);
        to.lost_locks += l.ranges.size();
        note_lost(l);
        are_some_gone |= erase_lock(l);
    }
    if (are_some_gone)
        unlocked(f);
}

task<void>
state_table::drop_lost_files(std::uint32_t space,
                             const std::function<task<result<void>>(const storage::handle&)>& is_there,
                             storage::restored_state& to, const std::atomic<bool>& goes_on)
{
    auto finding = files_where(space, [](const file_entry& f) { return f.states != 0; });
    const std::deque<storage::handle> files = co_await finding;
    for (const storage::handle& key : files) {
        auto looking = is_there(key);
        const result<void> seen = co_await looking;
        // What this answered may be of a file system that is away again.
        if (!goes_on || (!seen && seen.error().errno_value() == ECANCELED))
            co_return;
        if (seen) {
            ++to.files;
        } else if (is_gone(seen.error())) {
            task<void> losing = lose_file(key, to);
            co_await losing;
        }
    }
}

// Others of the shard have their turn between the parts, and may open it anew where its handle is another file's by now: that is gone, too.
task<void> state_table::lose_file(storage::handle file, storage::restored_state& to)
{
    file_entry* const f = find_file(file);
    if (f == nullptr)
        co_return;
    const pinned kept(*this, *f);
    std::size_t opens = 0;
    std::string clients;
    std::size_t taken = 0;
    bool are_locks_gone = false;
    // The locks of an open come before it: they would go with it, and nobody would keep them in mind.
    const auto next = [f]() -> state_entry* {
        if (auto* const m = f->opens.front()) {
            if (auto* const l = static_cast<open_entry&>(m->owner).locks.front())
                return &l->owner;
            return &m->owner;
        }
        if (auto* const m = f->locks.front()) // of hosts
            return &m->owner;
        auto* const m = f->recallables.front();
        return m == nullptr ? nullptr : &m->owner;
    };
    for (state_entry* s = next(); s != nullptr; s = next()) {
        if (s->kind == state_kind::open && opens++ == 0)
            clients = printable(s->client.card.key);
        if (s->kind != state_kind::other) // which is fenced, and its stateid is bad_stateid
            note_lost(*s);
        if (s->kind == state_kind::lock)
            are_locks_gone |= erase_lock(static_cast<lock_entry&>(*s));
        else
            remove(*s);
        if (++taken % states_at_once != 0)
            continue;
        const bool goes_on = co_await sleep_for(duration::zero());
        if (!goes_on)
            break;
    }
    if (are_locks_gone)
        unlocked(*f);
    ++to.lost_files;
    tell_lost("a file that was open " + std::to_string(opens) + " times" +
                  (clients.empty() ? std::string() : ", first by client " + clients) + ": it is gone",
              to);
}

} // namespace verbena::files
