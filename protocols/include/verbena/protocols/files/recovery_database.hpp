// SPDX-License-Identifier: Apache-2.0
// The list of clients that may reclaim after a restart, in an SQLite database.
//
// Why a database: a change must be whole or not there after the loss of power, and an operator can look at it with a tool that he has.
#pragma once

#include <verbena/core/log.hpp>
#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/result.hpp>
#include <verbena/protocols/files/recovery.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// SQLite's, which no public header includes.
struct sqlite3;
struct sqlite3_stmt;

#pragma GCC visibility push(default)

namespace verbena::files {

/// A change of the list. Owns its key.
struct recovery_change {
    /// What a change does to the list.
    enum class kind : std::uint8_t { add, remove, end_grace };
    /// `of` is the client's key, empty for end_grace; `against`, of `add`, is what its record is to say that it
    /// keeps out.
    explicit recovery_change(kind k, std::string_view of = {}, share against = share::both)
        : what(k), key(of), keeps_out(against)
    {
    }
    kind what;       ///< what it does
    std::string key; ///< of the client; empty for end_grace
    share keeps_out; ///< with add
};

/// The database. Its functions block, in system calls and on a lock: for start-up and pool threads, never for a shard. Any thread.
///
/// Each that changes something answers when the change is on stable storage (a write-ahead log, synchronous=FULL), so that what was
/// answered survives the loss of power.
class recovery_database {
public:
    /// What this program writes. It takes 1 as well, which did not say what a client may keep others from: that is all, then.
    static constexpr int schema = 2;

    /// Opens `path`, or makes it for this user alone. The folder is there. Throws config_error that names the file, what is wrong, and the
    /// cure: it can't be opened or written, is damaged, is another program's or of another schema, or a process has it open.
    explicit recovery_database(std::string path);
    ~recovery_database();
    recovery_database(const recovery_database&) = delete;

    const std::string& path() const noexcept { return path_; }
    /// Once, before anything is served: the list becomes that of those that may reclaim now, unless the start before ended within its
    /// grace period, whose list then stays. `lease` is that of this start. The epoch is above all that were handed out, and `least_epoch` or
    /// more. Throws as the constructor does.
    recovery_start begin(duration lease, std::uint32_t least_epoch);
    /// Makes all changes, in their order, or none. Errors: what SQLite or the disk say; then none was made, or, after a failed sync, some
    /// may have been. After a failed sync no further change is taken until the next start, as nobody can tell what reached the disk.
    result<void> apply(std::span<const recovery_change* const> changes);

private:
    class statement;
    class transaction;
    void open();
    void close() noexcept;
    void check_contents();
    void make_schema();
    [[noreturn]] void refuse(const std::string& why, const std::string& cure) const;
    [[noreturn]] void refuse_last() const;
    bool run(const char* sql) noexcept;
    std::string text_of(const char* sql) const;
    bool change(const recovery_change& c) noexcept;
    error last_error() noexcept;

    const std::string path_;
    std::mutex lock_; // held by whoever uses `database_`
    sqlite3* database_ = nullptr;
    std::unique_ptr<statement> add_, remove_, remove_old_, end_grace_, end_grace_lease_;
    bool sync_failed_ = false;
};

/// The store of a state_table over the database. Changes that wait for the disk at once are written together.
///
/// Completes when, errors: as recovery_store says. On cancel: it waits for the disk all the same. Lifetime: `database` and `lane` outlive
/// it, and it its tasks. Shard: any.
class database_store final : public recovery_store {
public:
    /// `lane` runs what blocks; one thread is enough.
    database_store(recovery_database& database, blocking_pool& lane) noexcept
        : database_(database), lane_(lane)
    {
    }
    task<result<void>> add(std::string_view key, share keeps_out) override;
    task<result<void>> remove(std::string_view key) override;
    task<result<void>> end_grace() override;

private:
    struct waiting;
    task<result<void>> write(recovery_change change);
    void write_what_waits(waiting& own);

    recovery_database& database_;
    blocking_pool& lane_;
    std::mutex queue_lock_;
    std::vector<waiting*> queue_; // in frames of write()
    std::mutex writing_;
    log_limiter failures_;
};

} // namespace verbena::files

#pragma GCC visibility pop
