// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/module/settings.hpp>
#include <verbena/core/module/start_error.hpp>
#include <verbena/core/printable.hpp>
#include <verbena/protocols/files/recovery_database.hpp>

#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <system_error>
#include <unistd.h>

namespace verbena::files {

namespace {

// "vrbn", in the header of the file: `file` and SQLite's own tools show it.
constexpr int application_id = 0x7672626e;
// A database of this schema is changed to the newest one at a start.
constexpr int oldest_schema = 1;
// For a process that is about to end. Whoever starts a second daemon is told after that time.
constexpr int busy_milliseconds = 1000;
// The epoch is half of a client's number and a part of each stateid, in which neither 0 nor all ones may stand.
constexpr std::int64_t last_epoch = 0xffff'fffe;
// So many changes are one transaction.
constexpr std::size_t most_at_once = 1024;

const char* const damaged_cure =
    "move it and the files beside it away; clients then can't reclaim what they had open after this start";

std::error_code code_of(int sqlite) noexcept
{
    switch (sqlite & 0xff) {
    case SQLITE_FULL: return std::make_error_code(std::errc::no_space_on_device);
    case SQLITE_READONLY: return std::make_error_code(std::errc::read_only_file_system);
    case SQLITE_NOMEM: return std::make_error_code(std::errc::not_enough_memory);
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return std::make_error_code(std::errc::device_or_resource_busy);
    default: return std::make_error_code(std::errc::io_error);
    }
}

const char* cure_of(const error& e) noexcept
{
    if (e == std::errc::no_space_on_device)
        return "make room there (df); it goes on by itself";
    if (e == std::errc::read_only_file_system)
        return "make the file, its folder and its file system writable; it goes on by itself";
    if (e == std::errc::not_enough_memory)
        return "give the process more memory; it goes on by itself";
    return "see to the disk that it is on (dmesg); after a failed sync start again";
}

// The first line of a file of /proc; empty if there is none.
std::string line_of(const std::string& path)
{
    std::string line;
    std::ifstream in(path);
    std::getline(in, line);
    return line;
}

// SQLite locks bytes of the file, by fcntl(2), of which the kernel says whose they are.
std::string why_busy(const std::string& path)
{
    struct flock lock{};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    const bool asked = file >= 0 && ::fcntl(file, F_GETLK, &lock) == 0;
    if (file >= 0)
        ::close(file);
    std::string text = "another process has it open";
    if (asked && lock.l_type != F_UNLCK && lock.l_pid > 0) {
        const std::string proc = "/proc/" + std::to_string(lock.l_pid);
        const std::string name = line_of(proc + "/comm"), stat = line_of(proc + "/stat");
        text += ", PID " + std::to_string(lock.l_pid) + (name.empty() ? "" : " (" + printable(name) + ")");
        // The letter behind the name, which may have any.
        const std::size_t behind = stat.rfind(')');
        if (behind != std::string::npos && stat.substr(behind + 1, 2) == " Z")
            return text + ", which has ended but for calls that a disk does not answer: unmount that disk by "
                          "force (umount -f -l), and the process goes";
    }
    return text + "; end that one, or give each verbenad a folder of its own with --state DIR";
}

bool is_failed_sync(int sqlite) noexcept
{
    return sqlite == SQLITE_IOERR_FSYNC || sqlite == SQLITE_IOERR_DIR_FSYNC;
}

} // namespace

// One that is prepared. The database's lock is held where it is used.
class recovery_database::statement {
public:
    statement(sqlite3* database, const char* sql) noexcept
    {
        (void)sqlite3_prepare_v3(database, sql, -1, SQLITE_PREPARE_PERSISTENT, &prepared_, nullptr);
    }
    statement(const statement&) = delete;
    ~statement() { sqlite3_finalize(prepared_); }

    bool is_good() const noexcept { return prepared_ != nullptr; }
    void bind(int at, std::int64_t value) noexcept { sqlite3_bind_int64(prepared_, at, value); }
    void bind(int at, std::string_view key) noexcept
    {
        sqlite3_bind_blob64(prepared_, at, key.data(), key.size(), SQLITE_STATIC);
    }
    /// Whether there is another row.
    bool next() noexcept { return sqlite3_step(prepared_) == SQLITE_ROW; }
    /// The end of the rows; false for an error.
    bool end() noexcept { return sqlite3_reset(prepared_) == SQLITE_OK; }
    bool run() noexcept
    {
        while (next()) {
        }
        return end();
    }
    std::int64_t number(int column) const noexcept { return sqlite3_column_int64(prepared_, column); }
    std::string bytes(int column) const
    {
        const auto* data = static_cast<const char*>(sqlite3_column_blob(prepared_, column));
        return data == nullptr ? std::string()
                               : std::string(data, std::size_t(sqlite3_column_bytes(prepared_, column)));
    }

private:
    sqlite3_stmt* prepared_ = nullptr;
};

// Undone unless it was committed.
class recovery_database::transaction {
public:
    explicit transaction(recovery_database& d) noexcept : database_(d), open_(d.run("BEGIN IMMEDIATE")) {}
    transaction(const transaction&) = delete;
    ~transaction()
    {
        if (open_)
            (void)database_.run("ROLLBACK");
    }
    bool is_open() const noexcept { return open_; }
    bool commit() noexcept
    {
        const bool done = database_.run("COMMIT");
        open_ = open_ && !done;
        return done;
    }

private:
    recovery_database& database_;
    bool open_;
};

recovery_database::recovery_database(std::string path) : path_(std::move(path))
{
    try {
        open();
    } catch (...) {
        close();
        throw;
    }
}

recovery_database::~recovery_database() { close(); }

void recovery_database::close() noexcept
{
    add_.reset();
    remove_.reset();
    remove_old_.reset();
    end_grace_.reset();
    end_grace_lease_.reset();
    sqlite3_close(database_);
}

void recovery_database::refuse(const std::string& why, const std::string& cure) const
{
    throw config_error("recovery database " + path_ + ": " + why + "; " + cure);
}

// For what SQLite said last.
void recovery_database::refuse_last() const
{
    const int code = sqlite3_errcode(database_);
    const std::string why = sqlite3_errmsg(database_);
    switch (code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: refuse("it is damaged or no database (" + why + ")", damaged_cure);
    case SQLITE_BUSY: throw start_error("recovery database " + path_ + ": " + why_busy(path_));
    case SQLITE_READONLY:
        refuse("it can't be written (" + why + ")",
               "make it and its folder writable, or choose another one with --state DIR");
    case SQLITE_FULL:
        throw start_error("recovery database " + path_ +
                          ": the disk is full; make room there, or choose another folder with --state DIR");
    case SQLITE_IOERR:
    case SQLITE_NOMEM:
        throw start_error("recovery database " + path_ + ": " + why +
                          "; mend that, or choose another folder with --state DIR");
    default: refuse(why, "mend that, or choose another folder with --state DIR");
    }
}

bool recovery_database::run(const char* sql) noexcept
{
    return sqlite3_exec(database_, sql, nullptr, nullptr, nullptr) == SQLITE_OK;
}

// The first column of the first row.
std::string recovery_database::text_of(const char* sql) const
{
    statement s(database_, sql);
    if (!s.is_good() || !s.next())
        refuse_last();
    return s.bytes(0);
}

void recovery_database::open()
{
    // What stands there are names of clients, for nobody else. SQLite gives its other files the same rights.
    const int made = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (made < 0)
        refuse(std::generic_category().message(errno),
               "make it and its folder writable, or choose another one with --state DIR");
    ::close(made);
    if (sqlite3_open_v2(path_.c_str(), &database_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr) !=
        SQLITE_OK)
        refuse_last();
    sqlite3_extended_result_codes(database_, 1);
    sqlite3_busy_timeout(database_, busy_milliseconds);
    // One process alone: another daemon on the same folder is refused. Said before the first look, so that no memory is shared.
    if (!run("PRAGMA locking_mode=EXCLUSIVE"))
        refuse_last();
    check_contents();
    // A log before the file, synced at each commit: with less a commit may be undone by the loss of power. SQLite syncs the folder too
    // when it has made the log, and with it the names of all files.
    if (text_of("PRAGMA journal_mode=WAL") != "wal")
        refuse("its file system takes no write-ahead log",
               "choose a folder of a local file system with --state DIR");
    if (!run("PRAGMA synchronous=FULL"))
        refuse_last();
    make_schema();
    const auto prepare = [this](const char* sql) {
        auto s = std::make_unique<statement>(database_, sql);
        if (!s->is_good())
            refuse_last();
        return s;
    };
    // An earlier write may have reached the disk though it was answered with an error: what it said stays.
    add_ = prepare("INSERT INTO clients VALUES (?1, ?2) "
                   "ON CONFLICT (owner) DO UPDATE SET keeps_out = keeps_out | excluded.keeps_out");
    remove_ = prepare("DELETE FROM clients WHERE owner = ?1");
    remove_old_ = prepare("DELETE FROM reclaiming WHERE owner = ?1");
    end_grace_ = prepare("DELETE FROM reclaiming");
    end_grace_lease_ = prepare("UPDATE server SET lease_seconds = ?1"); // begin() says which
}

// Before anything is written: it is ours and whole, or empty.
void recovery_database::check_contents()
{
    const std::string tables = text_of("SELECT count(*) FROM sqlite_schema");
    const std::string application = text_of("PRAGMA application_id");
    const std::string version = text_of("PRAGMA user_version");
    if (tables == "0" && application == "0")
        return;
    if (application != std::to_string(application_id))
        refuse("it is a database of another program",
               "move it away, or choose another folder with --state DIR");
    if (version != std::to_string(schema) && version != std::to_string(oldest_schema))
        refuse("it has schema " + version + ", and this verbenad knows " + std::to_string(schema),
               "start the verbenad that wrote it, or move it and the files beside it away; clients then "
               "can't reclaim what they had "
               "open after this start");
    if (const std::string found = text_of("PRAGMA quick_check(1)"); found != "ok")
        refuse("it is damaged (" + found + ")", damaged_cure);
}

void recovery_database::make_schema()
{
    transaction t(*this);
    // Schema 1 did not say whom a client keeps out, so it may be both readers and writers.
    const bool is_old = text_of("PRAGMA user_version") == std::to_string(oldest_schema);
    if (t.is_open() && is_old &&
        !run("ALTER TABLE clients ADD COLUMN keeps_out INTEGER NOT NULL DEFAULT 3;"
             "ALTER TABLE reclaiming ADD COLUMN keeps_out INTEGER NOT NULL DEFAULT 3"))
        refuse_last();
    // Also what a database that can't be written fails at.
    if (!t.is_open() ||
        !run("CREATE TABLE IF NOT EXISTS server (id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT "
             "NULL, "
             "lease_seconds INTEGER NOT NULL);"
             // May reclaim after the next start.
             "CREATE TABLE IF NOT EXISTS clients (owner BLOB PRIMARY KEY, keeps_out INTEGER NOT NULL DEFAULT "
             "3) WITHOUT ROWID;"
             // May reclaim since the last one, until grace is over.
             "CREATE TABLE IF NOT EXISTS reclaiming (owner BLOB PRIMARY KEY, keeps_out INTEGER NOT NULL "
             "DEFAULT 3) WITHOUT ROWID;"
             // An epoch is no time where the clock was set back.
             "CREATE TABLE IF NOT EXISTS clock (id INTEGER PRIMARY KEY CHECK (id = 1), started INTEGER NOT "
             "NULL);"
             "INSERT OR IGNORE INTO clock VALUES (1, 0);"
             "INSERT OR IGNORE INTO server VALUES (1, 0, 0)") ||
        !run(("PRAGMA application_id=" + std::to_string(application_id) +
              "; PRAGMA user_version=" + std::to_string(schema))
                 .c_str()) ||
        !t.commit())
        refuse_last();
}

recovery_start recovery_database::begin(duration lease, std::uint32_t least_epoch)
{
    const std::lock_guard held(lock_);
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(lease).count();
    recovery_start out;
    transaction t(*this);
    if (!t.is_open())
        refuse_last();
    statement before(
        database_,
        "SELECT epoch, lease_seconds, EXISTS (SELECT 1 FROM reclaiming), started FROM server, clock");
    if (!before.is_good() || !before.next())
        refuse_last();
    const bool within_grace = before.number(2) != 0;
    const std::int64_t seconds_before = before.number(1);
    out.lease_before = std::chrono::seconds(seconds_before);
    const std::int64_t started = before.number(3);
    out.started_before = within_grace || started > least_epoch ? 0 : static_cast<std::uint32_t>(started);
    std::int64_t epoch = std::max<std::int64_t>(before.number(0) + 1, least_epoch);
    if (epoch < 1 || epoch > last_epoch)
        epoch = 1;
    out.epoch = std::uint32_t(epoch);
    if (!before.end())
        refuse_last();
    if ((!within_grace && !run("INSERT INTO reclaiming SELECT owner, keeps_out FROM clients")) ||
        !run("DELETE FROM clients"))
        refuse_last();
    // Should this grace period not end, what is reclaimed in the next one is still of that start and its lease.
    statement after(
        database_,
        "UPDATE server SET epoch = ?1, lease_seconds = max(?2, ?3 * EXISTS (SELECT 1 FROM reclaiming))");
    after.bind(1, epoch);
    after.bind(2, std::int64_t(seconds));
    after.bind(3, seconds_before);
    if (!after.run())
        refuse_last();
    statement set(database_, "UPDATE clock SET started = ?1");
    set.bind(1, std::int64_t(least_epoch));
    if (!set.run())
        refuse_last();
    end_grace_lease_->bind(1, std::int64_t(seconds));
    statement keys(database_, "SELECT owner, keeps_out FROM reclaiming");
    while (keys.next())
        out.reclaimers.push_back({keys.bytes(0), share(keys.number(1) & 3)});
    if (!keys.end() || !t.commit())
        refuse_last();
    return out;
}

error recovery_database::last_error() noexcept
{
    const int code = sqlite3_extended_errcode(database_);
    sync_failed_ = sync_failed_ || is_failed_sync(code);
    return {code_of(code), sqlite3_errstr(code)}; // lives for ever
}

bool recovery_database::change(const recovery_change& c) noexcept
{
    const auto with_key = [&c](statement& s) {
        s.bind(1, c.key);
        return s.run();
    };
    switch (c.what) {
    case recovery_change::kind::add: add_->bind(2, std::int64_t(c.keeps_out)); return with_key(*add_);
    case recovery_change::kind::remove: return with_key(*remove_) && with_key(*remove_old_);
    case recovery_change::kind::end_grace: return end_grace_->run() && end_grace_lease_->run();
    }
    return false;
}

result<void> recovery_database::apply(std::span<const recovery_change* const> changes)
{
    const std::lock_guard held(lock_);
    if (sync_failed_)
        return error(std::errc::io_error, "the recovery database: an earlier sync failed");
    transaction t(*this);
    if (!t.is_open())
        return last_error();
    for (const recovery_change* c : changes) {
        if (!change(*c))
            return last_error();
    }
    if (!t.commit())
        return last_error();
    return {};
}

// --- The store

struct database_store::waiting {
    explicit waiting(recovery_change c) noexcept : change(std::move(c)) {}
    recovery_change change;
    bool is_done = false; // of whoever holds `writing_`
    result<void> outcome;
};

task<result<void>> database_store::add(std::string_view key, share keeps_out)
{
    return write(recovery_change(recovery_change::kind::add, key, keeps_out));
}

task<result<void>> database_store::remove(std::string_view key)
{
    return write(recovery_change(recovery_change::kind::remove, key));
}

task<result<void>> database_store::end_grace()
{
    return write(recovery_change(recovery_change::kind::end_grace));
}

task<result<void>> database_store::write(recovery_change change)
{
    waiting own(std::move(change));
    {
        const std::lock_guard held(queue_lock_);
        queue_.push_back(&own);
    }
    auto work = [this, &own] { write_what_waits(own); };
    co_await lane_.run(std::move(work));
    co_return own.outcome;
}

// Whoever comes first writes for all that wait by then; these find it done.
void database_store::write_what_waits(waiting& own)
{
    const std::lock_guard writing(writing_);
    while (!own.is_done) {
        std::array<waiting*, most_at_once> batch;
        std::array<const recovery_change*, most_at_once> changes;
        std::size_t count = 0;
        {
            const std::lock_guard held(queue_lock_);
            count = std::min(queue_.size(), batch.size());
            std::copy_n(queue_.begin(), count, batch.begin());
            queue_.erase(queue_.begin(), queue_.begin() + std::ptrdiff_t(count));
        }
        std::transform(batch.begin(), batch.begin() + count, changes.begin(),
                       [](const waiting* w) { return &w->change; });
        const result<void> outcome = database_.apply(std::span(changes.data(), count));
        for (std::size_t i = 0; i < count; ++i) {
            batch[i]->outcome = result<void>(outcome);
            batch[i]->is_done = true;
        }
        if (!outcome)
            log_limited(failures_, log_level::error, "nfs",
                        "the recovery database took no change: clients are told to wait",
                        {{"file", database_.path()},
                         {"error", outcome.error().message()},
                         {"cure", cure_of(outcome.error())}});
    }
}

} // namespace verbena::files
