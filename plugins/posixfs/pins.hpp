// SPDX-License-Identifier: Apache-2.0
// Files that clients have open: posixfs keeps them when they lose their last name (docs/internals/posixfs.md,
// "Files that are open").
#pragma once

#include "descriptor_cache.hpp"
#include "unique_fd.hpp"

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/log.hpp>
#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/siphash.hpp>
#include <verbena/plugins/posixfs.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace verbena::posixfs {

/// The open files of one back end, by handle. An O_PATH descriptor keeps each file. It hinders neither leases
/// nor the execution of the file. All tables of the process together have a bound of such descriptors. At the
/// bound a table closes the descriptor that was unused longest and whose file has a name; that file is opened
/// again by its handle when it is next needed. A file without a name never loses its descriptor. Files without
/// names of one peer may have half of the bound: then files that it has open are not removed, but those of others
/// are.
///
/// Any thread. A READ or WRITE of a cached file does not come here. Outlived by the pool and by the log of
/// removals.
class pin_table {
    struct entry;
    /// A count in an entry, until the object goes.
    class hold {
    public:
        hold(hold&& other) noexcept : of_(std::exchange(other.of_, nullptr)), count_(other.count_) {}
        hold& operator=(hold&& other) noexcept
        {
            std::swap(of_, other.of_);
            std::swap(count_, other.count_);
            return *this;
        }
        ~hold()
        {
            if (of_ != nullptr)
                end(*of_, count_);
        }
        /// The one that the file is kept by; nullptr: it has none now.
        std::shared_ptr<const shared_fd> descriptor() const noexcept;

    protected:
        friend class pin_table;
        /// With the lock.
        hold(entry& of, std::size_t entry::* count) noexcept : of_(&of), count_(count) { ++(of.*count); }
        entry* of_;
        std::size_t entry::* count_;
    };

public:
    /// A file, and a descriptor of it that stays the caller's. On a mount that other hosts may change it
    /// should be an O_PATH one: nothing that might ask them is done here.
    struct known_file {
        const storage::handle& handle;
        int fd;
        const mount_point& mount;
        /// `fd` as an O_PATH one that the file is kept by. Nothing: a duplicate of `fd` is made for that.
        std::shared_ptr<const shared_fd> path = {};
    };
    /// Somebody has the file open. When the last pin of a file without a name goes, all shards close that
    /// file, so that its room is free.
    using pin = hold;
    /// Somebody removes a name of the file. Until the object goes the file keeps its descriptor, also for
    /// those who open it meanwhile.
    class removal : public hold {
    public:
        using hold::hold;
        /// To be called when the last name is gone: true if the file stays, because somebody has it open.
        bool keeps() noexcept;
    };

    /// `most`: the bound of descriptors. `root`, and the export's `name`: for the log.
    pin_table(blocking_pool& pool, removal_log& removals, std::size_t most, std::string root,
              std::string name = {})
        : pool_(pool), removals_(removals), most_(most), root_(std::move(root)), name_(std::move(name))
    {
    }
    ~pin_table();
    pin_table(const pin_table&) = delete;
    /// Tables that say the same `space`, which is not 0, have the same files by the same handles: a file that is open
    /// by one of them is found by the others, which have it on `mount`. 0: it shares with none. Before anything is opened, and
    /// when the root is another one.
    void share(std::uint64_t space, const mount_point& mount);
    /// Closes the descriptors of what is open, which stays open by its handle; but not those of files that are known to have no
    /// name, unless `nameless`.
    void let_go(bool nameless) noexcept;
    /// A file that is open, and who has opened it.
    struct kept_file {
        std::shared_ptr<const shared_fd> fd;
        std::string client; ///< the address, or its network; empty: not known
    };
    /// Those of this table that have a descriptor.
    std::vector<kept_file> kept() const;

    /// Without a free descriptor the file is open all the same, by its handle alone. But while a name of it
    /// is being removed that is refused: EAGAIN at the bound, or why there is no descriptor. ESTALE if it has no
    /// name any more, nobody has it open, and there is no descriptor.
    /// `later`: the cache that holds `file.fd` calls give_later() before it closes that. `client`: the address of who
    /// opens it, or nothing; the file counts as that peer's as long as anybody has it open.
    result<pin> add(const known_file& file, bool later = false, std::string_view client = {});
    /// The file gets the descriptor that add() put off.
    void give_later(const known_file& file) noexcept;
    /// Gives the file a descriptor before the name goes, if somebody has it open. EBUSY at the bound or at the peer's
    /// share of it, or why there is none: the name must stay.
    result<removal> removing(const known_file& file);
    /// True if somebody has the file open; then it has a descriptor again, if there is one. `nameless`: its
    /// last name is gone.
    bool keeps(const known_file& file, bool nameless) noexcept;
    /// Puts a duplicate of the file's descriptor into `out` and gives the file's mount. nullptr if nobody has
    /// the file open, or it has no descriptor. `out` stays empty if there is none to be had (errno).
    const mount_point* open(const storage::handle& file, unique_fd& out) noexcept;
    /// The handle leads to no file any more. If somebody has the file open, it is lost.
    void missed(const storage::handle& file) noexcept;

    open_file_counters counters() const noexcept;
    /// Descriptors that all tables of the process hold.
    static std::size_t held() noexcept { return held_.load(std::memory_order_relaxed); }
    /// The bound unless somebody chooses another: an eighth of RLIMIT_NOFILE.
    static std::size_t usual_bound() noexcept { return descriptor_cache::budget() / 4; }

private:
    struct use_of_peer {
        std::size_t files = 0;    ///< that it has opened
        std::size_t nameless = 0; ///< those of them with a descriptor and without a name
    };
    struct name_hash {
        siphash_key key; // peers choose their addresses, within limits
        std::size_t operator()(std::string_view name) const noexcept
        {
            return siphash(key, std::as_bytes(std::span(name)));
        }
    };
    using peer_map = std::unordered_map<std::string, use_of_peer, name_hash>;
    using peer = peer_map::value_type;
    struct entry : list_hook {
        entry(pin_table& t, const mount_point& m) noexcept : of(t), mount(&m) {}
        pin_table& of;
        const mount_point* mount;                ///< of `fd`, or of its last one
        const storage::handle* handle = nullptr; ///< its key
        std::size_t opens = 0;
        std::size_t removals = 0;            ///< under way
        std::shared_ptr<const shared_fd> fd; ///< or it is closed
        bool later = false;                  ///< a cache has it open yet
        bool nameless = false;               ///< somebody saw that its last name is gone
        bool lost = false;                   ///< it went while it was closed
        bool unkept = false;                 ///< it was counted that there was no descriptor
        bool charged = false;                ///< it is among the nameless ones of its peer
        peer* opener = nullptr;              ///< who opened it first, if that is known
    };
    struct handle_hash {
        std::size_t operator()(const storage::handle& h) const noexcept;
    };

    // These with the lock.
    entry& entry_of(const known_file& file);
    entry* find_open(const storage::handle& file) noexcept;
    /// find_open(), or in another table of the same space.
    entry* find_open_anywhere(const storage::handle& file) noexcept;
    int give(entry& e, const known_file& file, unsigned looks = usual_looks) noexcept;
    /// give() where the file stays open without it.
    int try_to_give(entry& e, const known_file& file) noexcept;
    bool make_room(unsigned looks) const noexcept;
    static void use(entry& e) noexcept;
    static void charge(entry& e) noexcept;
    static void forget(entry& e) noexcept;
    bool share_is_used(const entry& e, const known_file& file) const noexcept;

    static void end(entry& e, std::size_t entry::* count) noexcept;

    /// How many files that may be closed one call looks at. Each one without a name is looked at once in all.
    static constexpr unsigned usual_looks = 64;
    /// The same for a removal, which is refused if there is none: somebody local may have removed many open files at
    /// once.
    static constexpr unsigned looks_of_removal = 1024;

    // Of all tables of the process.
    static inline std::mutex mutex_;
    static peer_map& peers();                       // that have a file open
    static inline std::vector<pin_table*> sharing_; // those with a space
    static inline intrusive_list<entry> closable_;  // what may be closed, the longest unused first
    static inline std::atomic<std::size_t> held_{0};

    blocking_pool& pool_;
    removal_log& removals_;
    const std::size_t most_;
    const std::string root_;
    const std::string name_;
    std::uint64_t space_ = 0;
    const mount_point* mount_ = nullptr; // where all of them have their files, if there is a space
    std::unordered_map<storage::handle, entry, handle_hash> entries_;
    std::atomic<std::uint64_t> closed_{0};
    std::atomic<std::uint64_t> lost_{0};
    std::atomic<std::uint64_t> refused_{0};
    log_limiter lost_logged_{1, std::chrono::hours(1)};
    log_limiter closed_logged_{1, std::chrono::hours(1)};
    log_limiter refused_logged_{1, std::chrono::minutes(1)};
};

} // namespace verbena::posixfs
