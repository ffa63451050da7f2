// SPDX-License-Identifier: Apache-2.0
// Clients that want the same few files, and what serves them. files_moves.cpp says what a client may do, files_clients.cpp how clients and hosts
// live, and files_checks.cpp what must be so after each step.
#pragma once

#include "../unit/plugins/temporary_directory.hpp"
#include "../unit/protocols/files_store.hpp"
#include "files_model.hpp"

#include <boost/test/unit_test.hpp>

#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/files/recovery_database.hpp>
#include <verbena/protocols/files/state_table.hpp>

#include <algorithm>
#include <array>
#include <list>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace verbena::sim {

struct heard {
    time_point when;
    bool is_recall;
    client_id client;
    stateid id;        // of a recall
    std::string owner; // of a lock
    storage::handle file;
};

struct told {
    std::uint64_t opens = 0, denied_shares = 0, needed_room = 0, made_room = 0, busy = 0, locks = 0,
                  denied_locks = 0, waits_told = 0, delegations = 0, recalls = 0, revocations = 0,
                  expired = 0, returned = 0, restarts = 0, reclaims = 0, refused_reclaims = 0, lapsed = 0,
                  refused_grace = 0, downgrades = 0, io = 0, limits = 0, store_failures = 0, unheard = 0,
                  on_disk = 0, of_two_opens = 0, unwritten = 0, io_in_grace = 0, distrusted = 0, outlived = 0,
                  leases = 0, refused_leases = 0, local = 0, host_locks = 0, host_restarts = 0,
                  late_notices = 0, host_reclaims = 0, silent_hosts = 0, not_over = 0;
};

class files_world final : public state_handler, private files_model {
public:
    files_world(std::uint64_t seed, told& t) : told_(t), random_(seed), homes_(1 + unsigned(seed % 3))
    {
        reactor_options r;
        r.clock = &clock_;
        r.seed = seed;
        shard_ = std::move(*reactor::create(r));
        place_.emplace(*shard_);
        clients_.resize(2 + random_() % 3);
        for (std::size_t i = 0; i < clients_.size(); ++i)
            clients_[i].key = std::string(1, char('a' + i));
        // One client in four.
        m_client host;
        host.key = "nlm h";
        host.is_host = true;
        host.is_monitored = random_() % 4 != 0;
        clients_.push_back(host);
        opens_limit_ = random_() % 4 == 0 ? 4 : 1000;
        locks_limit_ = random_() % 4 == 0 ? 5 : 1000;
        few_steps_ = random_() % 4 == 0;
        slow_store_ = random_() % 2 == 0;
        failing_store_ = random_() % 3 == 0;
        if (seed % 20 == 0) // a sync costs more than a run
            folder_.emplace(std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : "");
    }

    void run(unsigned steps) { run_until_complete(*shard_, whole(steps)); }

private:
    // --- The server

    void start();
    // The database has the same lists, whatever stopped it.
    void begin_on_disk(const std::vector<reclaimer>& keys);
    void write_on_disk(std::string_view what, std::string_view key, share keeps_out);
    // What is in memory goes; what is being written arrives or not, and nobody hears of it.
    task<void> crash();

    void recall(const recall_notice& n) noexcept override;
    void recall_any(client_id, std::size_t) noexcept override {}
    time_point last_heard(client_id id) noexcept override;
    void lock_available(const lock_notice& n) noexcept override;

    // --- The model and the table

    // What others did since, and time: seen, checked to be right, and taken over.
    void sync();
    void lapse(time_point now);
    // The table says what the model says, and nothing contradicts anything.
    void agrees(bool lapsed);
    bool is_written(unsigned client, share keeps_out) const;
    // What it has it may take back after the next start, if grace is over.
    bool is_written_host(const m_client& c) const { return c.is_host && lists_.new_list.contains(c.key); }
    static bool may_reclaim(const std::vector<reclaimer>& all, const m_client& c);
    state_table& at(unsigned file) { return *tables_[commons_->home_of(file_number(file))]; }
    state_table& at(const stateid& id) { return *tables_[commons_->home_of(id)]; }
    state_table& at(const open_request& r) { return *tables_[commons_->home_of(r.file.key)]; }
    void is_there(unsigned client, const stateid& id);
    // --- Draws

    template<class List>
    auto* any_of(List& list, unsigned client)
    {
        std::vector<typename List::value_type*> all;
        for (auto& one : list)
            if (one.client == client)
                all.push_back(&one);
        return all.empty() ? nullptr : all[random_() % all.size()];
    }
    byte_range some_bytes();
    duration some_patience() { return std::chrono::milliseconds(random_() % 3 == 0 ? 0 : random_() % 15000); }

    // --- Opens

    open_request request_of(const m_pending& p);
    /// What a back end gives for an open. It keeps the file.
    class kept_file final : public storage::open_file {
    public:
        kept_file(std::size_t& n, share access)
            : open_file(storage::credential(), unsigned(any(access & share::read) ? R_OK : 0) |
                                                   unsigned(any(access & share::write) ? W_OK : 0)),
              out_(n)
        {
            ++out_;
        }
        ~kept_file() override { --out_; }

    private:
        std::size_t& out_;
    };
    std::shared_ptr<const storage::open_file> open_of(unsigned file, share access);
    // Files of even numbers are those of a back end with leases.
    static bool has_leases(unsigned file) { return file % 2 == 0; }
    class one_lease final : public storage::file_lease {
    public:
        explicit one_lease(std::size_t& n) noexcept : out_(n) { ++out_; }
        ~one_lease() override { --out_; }

    private:
        std::size_t& out_;
    };
    result<opened> commit(const open_request& r, pending_open& p);
    result<opened> open_at_once(const open_request& r);
    // A process of the server's host wants a file.
    void local_writer();
    void opened_so(const m_pending& p, const opened& made);
    /// False: others have to give way.
    bool open(m_pending p, bool at_once);
    // What has begun and is denied must be over before the open is answered: as a protocol that does not wait for it.
    bool ends(unsigned file, share access);
    void opened_or_unwritten(const m_pending& p, const result<opened>& made);
    // As a protocol does before it opens; one time in four it does not.
    task<void> write_down(unsigned client, share keeps_out);
    task<void> open_with_room(m_pending p, duration patience);

    // --- Operations of others

    /// `doing` has begun it. False: others have to give way.
    bool operate(operation op, unsigned file, unsigned who, std::unique_ptr<under_way>& doing);
    // Somebody who is not done yet may have kept it out, by his record.
    bool waits_for_somebody(share access) const;
    // Before the restart, of what may still be reclaimed.
    void nobody_held_that(operation op, unsigned file) const;
    task<void> operate_with_room(operation op, unsigned file, unsigned who, duration patience);

    // --- Locks

    void lock(unsigned client);
    void note_denial(unsigned client, unsigned owner, unsigned file, const byte_range& bytes, lock_type type,
                     bool waits);
    task<void> room_for_lock(demand d, unsigned file, duration patience);
    void unlock(unsigned client);
    void test_locks(unsigned client);
    void free_lock(unsigned client);

    // --- What a host does

    owner_lock owner_lock_of(unsigned client, unsigned owner, unsigned file, const byte_range& bytes,
                             lock_type type);
    m_lock* find_host_lock(unsigned client, unsigned owner, unsigned file);
    // Likewise before others: it has that lock by then, or had it.
    m_lock host_lock(unsigned client, unsigned owner, unsigned file);
    void keep_host_lock(const m_lock& l);
    /// What it says of its start; false if what it has is of one before.
    bool calls(unsigned client);
    void act_as_host(unsigned client);
    task<void> lock_by_owner(unsigned client);
    void unlock_by_owner(unsigned client);
    // It has reclaimed when grace is over, and says so nowhere.
    task<void> reclaim_as_host(unsigned client);

    // --- What a client does

    m_pending some_open(unsigned client);

    void act(unsigned client);
    operation some_operation();
    void io(unsigned client);
    task<void> free_revoked(unsigned client, stateid id);

    // The client's machine starts again, or it heard that its state is gone.
    void begin_anew(unsigned client);
    task<void> anew(unsigned client);
    void join(unsigned client);
    task<void> say_complete(unsigned client);

    // After the server's restart: takes back what it had.
    task<void> reclaim(unsigned client);
    void reclaim_lock(const m_lock& l, const stateid& open);
    template<class List>
    static List mine(const List& all, unsigned client)
    {
        List out;
        for (const auto& one : all)
            if (one.client == client)
                out.push_back(one);
        return out;
    }

    // --- The whole

    task<void> restart();
    task<void> whole(unsigned steps);
    void end_pending(std::size_t i);
    task<void> all_home();

    told& told_;
    std::mt19937_64 random_;
    std::size_t leases_ = 0;                     // that the table has
    std::array<std::size_t, file_count> kept_{}; // opens of each file that somebody keeps
    bool took_lease_ = false;
    std::unique_ptr<reactor> shard_;
    std::optional<test::shard_of> place_;
    test::recovery_lists lists_;
    std::optional<suite::temporary_directory> folder_;
    std::optional<recovery_database> database_;
    std::vector<std::string> unheard_; // added behind the stop
    std::unique_ptr<test::memory_store> store_;
    std::optional<table_commons> commons_;
    std::optional<client_book> book_;
    unsigned homes_; // of files
    std::vector<std::unique_ptr<state_table>> tables_;
    std::unique_ptr<scope> serving_;
    bool stopping_ = false;
    bool slow_store_ = false, failing_store_ = false;
    bool few_steps_ = false, is_settled_ = false;
    std::size_t opens_limit_ = 0, locks_limit_ = 0;

    std::list<m_open> old_opens_; // before the restart
    std::list<m_lock> old_locks_;
    std::list<m_delegation> old_delegations_;
    std::vector<heard> heard_;
    std::array<unsigned, file_count> asking_{};
    std::uint32_t last_made_up_ = 0; // stateid of a host's locks
    std::vector<std::pair<unsigned, time_point>> resting_;
    std::vector<reclaimer> reclaimers_;
    time_point grace_began_{};
    bool in_grace_ = false;
};

} // namespace verbena::sim
