// SPDX-License-Identifier: Apache-2.0
// The memfs back end: a table of nodes under one mutex.
#pragma once

#include "node.hpp"

#include <verbena/plugins/memfs.hpp>

#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <unordered_map>

namespace verbena::memfs {

/// Of the directory of snapshots, in the root, which does not list it.
inline constexpr std::string_view snapshots_name = ".snapshot";
/// The last offset that off_t can say.
inline constexpr std::uint64_t max_offset = std::numeric_limits<std::int64_t>::max();

/// Memory of files, and the mutex of all that there is. Whoever has some of it on loan keeps it there.
struct file_memory {
    explicit file_memory(std::uint64_t blocks) : blocks(blocks) {}

    std::mutex mutex;
    arena blocks;
};

class backend final : public storage::file_backend, public storage::snapshot_keeper {
public:
    explicit backend(const memfs_options& options);
    ~backend() override;

    std::string_view kind() const noexcept override { return "memfs"; }
    const storage::filesystem_info& info() const noexcept override { return info_; }
    storage::handle root() const noexcept override { return handle_of(root_id); }
    std::optional<std::uint64_t> number_in(const storage::handle& file) const noexcept override
    {
        const auto id = id_of(file);
        return id ? std::optional(*id) : std::nullopt;
    }
    std::uint64_t write_verifier() const noexcept override { return instance_; }

    task<result<storage::attributes>> getattr(const storage::request& r,
                                              const storage::handle& file) override;
    task<result<storage::change>> setattr(const storage::request& r, const storage::handle& file,
                                          const storage::set_attributes& set,
                                          std::optional<storage::file_time> guard) override;
    task<result<storage::lookup_result>> lookup(const storage::request& r, const storage::handle& directory,
                                                std::string_view name) override;
    task<result<unsigned>> access(const storage::request& r, const storage::handle& file,
                                  unsigned wanted) override;
    task<result<storage::opened_file>> open(const storage::request& r, const storage::handle& file,
                                            unsigned wanted, storage::open_right right) override;
    task<result<std::string>> readlink(const storage::request& r, const storage::handle& link) override;
    task<result<storage::read_result>> read(const storage::request& r, const storage::handle& file,
                                            std::uint64_t offset, std::span<std::byte> out) override;
    /// Memory on loan: who writes there meanwhile gets a copy of the block.
    task<result<storage::located_read>> locate(const storage::request& r, const storage::handle& file,
                                               std::uint64_t offset, std::uint32_t length,
                                               storage::locatable where) override;
    task<result<storage::write_result>> write(const storage::request& r, const storage::handle& file,
                                              std::uint64_t offset,
                                              std::span<const std::span<const std::byte>> pieces,
                                              storage::stability wanted) override;
    task<result<storage::create_result>> create(const storage::request& r, const storage::handle& directory,
                                                std::string_view name, storage::create_mode mode,
                                                const storage::set_attributes& set,
                                                std::uint64_t verifier) override;
    task<result<storage::create_result>> mkdir(const storage::request& r, const storage::handle& directory,
                                               std::string_view name,
                                               const storage::set_attributes& set) override;
    task<result<storage::create_result>> symlink(const storage::request& r, const storage::handle& directory,
                                                 std::string_view name, std::string_view target,
                                                 const storage::set_attributes& set) override;
    task<result<storage::create_result>> mknod(const storage::request& r, const storage::handle& directory,
                                               std::string_view name, storage::file_type type,
                                               std::uint32_t major, std::uint32_t minor,
                                               const storage::set_attributes& set) override;
    task<result<storage::change>> remove(const storage::request& r, const storage::handle& directory,
                                         std::string_view name) override;
    task<result<storage::change>> rmdir(const storage::request& r, const storage::handle& directory,
                                        std::string_view name) override;
    task<result<storage::rename_result>> rename(const storage::request& r,
                                                const storage::handle& from_directory, std::string_view from,
                                                const storage::handle& to_directory,
                                                std::string_view to) override;
    task<result<void>> may_remove(const storage::request& r, const storage::handle& directory,
                                  std::string_view name) override;
    task<result<void>> may_rename(const storage::request& r, const storage::handle& from_directory,
                                  std::string_view from, const storage::handle& to_directory,
                                  std::string_view to) override;
    task<result<storage::link_result>> link(const storage::request& r, const storage::handle& file,
                                            const storage::handle& directory, std::string_view name) override;
    task<result<storage::readdir_result>> readdir(const storage::request& r, const storage::handle& directory,
                                                  std::uint64_t cookie, std::uint64_t verifier,
                                                  bool with_attributes,
                                                  storage::directory_sink& sink) override;
    task<result<storage::filesystem_stat>> statfs(const storage::request& r,
                                                  const storage::handle& file) override;
    task<result<storage::change>> commit(const storage::request& r, const storage::handle& file,
                                         std::uint64_t offset, std::uint32_t count) override;

    // extents.cpp
    task<result<storage::seek_result>> seek(const storage::request& r, const storage::handle& file,
                                            std::uint64_t offset, storage::extent what) override;
    task<result<storage::change>> allocate(const storage::request& r, const storage::handle& file,
                                           std::uint64_t offset, std::uint64_t length) override;
    task<result<storage::change>> deallocate(const storage::request& r, const storage::handle& file,
                                             std::uint64_t offset, std::uint64_t length) override;
    task<result<storage::copy_result>> copy(const storage::request& r, const storage::handle& from,
                                            std::uint64_t from_offset, const storage::handle& to,
                                            std::uint64_t to_offset, std::uint64_t length) override;
    task<result<storage::change>> clone(const storage::request& r, const storage::handle& from,
                                        std::uint64_t from_offset, const storage::handle& to,
                                        std::uint64_t to_offset, std::uint64_t length) override;
    task<result<storage::mapping>> map(const storage::request& r, const storage::handle& file,
                                       std::uint64_t offset, std::uint64_t length,
                                       storage::map_use use) override;
    task<result<storage::change>> note_written(const storage::request& r, const storage::handle& file,
                                               storage::peer_writes what) override;

    // xattrs.cpp
    task<result<std::vector<std::byte>>> getxattr(const storage::request& r, const storage::handle& file,
                                                  std::string_view name) override;
    task<result<storage::change>> setxattr(const storage::request& r, const storage::handle& file,
                                           std::string_view name, std::span<const std::byte> value,
                                           storage::xattr_mode mode) override;
    task<result<std::vector<std::string>>> listxattrs(const storage::request& r,
                                                      const storage::handle& file) override;
    task<result<storage::change>> removexattr(const storage::request& r, const storage::handle& file,
                                              std::string_view name) override;

    // acls.cpp
    task<result<storage::access_list>> getacl(const storage::request& r,
                                              const storage::handle& file) override;

    // snapshots.cpp
    void refuse_changes(bool all) noexcept override
    {
        refuses_changes_.store(all, std::memory_order_relaxed);
    }
    storage::snapshot_keeper* snapshots() noexcept override { return options_.snapshots ? this : nullptr; }
    bool takes_in(const storage::handle& directory) const noexcept override;
    bool has(std::string_view name, const storage::handle& file) const noexcept override;
    std::shared_ptr<const void> hold_back_mappings() override;
    std::shared_ptr<const void> hold_back_mappings_of(std::string_view name) override;
    snapshot_counts counts() const noexcept;

    std::uint64_t lent_bytes() const noexcept
    {
        const std::lock_guard lock(mutex_);
        return memory_.lent() * file_data::block_size;
    }

private:
    static constexpr std::uint64_t root_id = 1;
    static constexpr std::uint64_t snapshots_id = 2; ///< of the directory of snapshots, where there is one
    static constexpr std::uint64_t name_cost = 256;  ///< of the nodes of both tables, about

    storage::handle handle_of(std::uint64_t fileid) const noexcept;
    result<std::uint64_t> id_of(const storage::handle& h) const noexcept;
    static int check_name(std::string_view name) noexcept;
    result<node*> find(const storage::handle& h) noexcept;
    /// A directory, and a name to be changed in it by `who`.
    result<node*> find_to_change(const storage::request& r, const storage::handle& directory,
                                 std::string_view name, int dots);
    class pin;
    class mapped;
    class held_back;
    /// A regular file whose data the caller may use so: R_OK or W_OK. `from`: where a write begins, as one at the end takes less.
    result<node*> find_data(const storage::request& r, const storage::handle& file, unsigned use,
                            std::optional<std::uint64_t> from = std::nullopt);
    /// The one that copy() and clone() read.
    result<node*> find_source(const storage::request& r, const storage::handle& file);
    result<node*> find_data(const storage::credential& who, bool is_let, const storage::handle& file,
                            unsigned use, std::optional<std::uint64_t> from);
    /// The same for a range that is to be changed.
    result<node*> find_range(const storage::request& r, const storage::handle& file, std::uint64_t offset,
                             std::uint64_t length);
    /// A file or directory whose extended attributes may be used so.
    result<node*> find_xattrs(const storage::request& r, const storage::handle& file, std::string_view name,
                              int use);
    /// Its data were changed by who asked.
    void note_change(node& n, const storage::request& r);
    storage::attributes seen(const node& n) const noexcept;
    result<storage::create_result> make(const storage::request& r, const storage::handle& directory,
                                        std::string_view name, storage::file_type type,
                                        std::uint32_t default_mode, const storage::set_attributes& set);
    /// What is to lose its name, and where. Errors: those of remove() and rmdir(), but for the wrong one of these.
    struct removal {
        node* directory = nullptr;
        node* victim = nullptr;
    };
    result<removal> find_victim(const storage::request& r, const storage::handle& directory,
                                std::string_view name);
    /// What is to get another name. Errors: those of rename().
    struct renaming {
        node* source = nullptr;
        node* target = nullptr;
        node* moved = nullptr;
        node* victim = nullptr; ///< what has that name; it may be `moved`
    };
    result<renaming> find_moved(const storage::request& r, const storage::handle& from_directory,
                                std::string_view from, const storage::handle& to_directory,
                                std::string_view to);
    bool is_of_snapshots(const storage::handle& directory) const noexcept
    {
        return options_.snapshots && directory == handle_of(snapshots_id);
    }
    result<storage::create_result> take_snapshot(const storage::request& r, std::string_view name);
    /// What a snapshot taken now has.
    struct tree {
        std::vector<std::pair<std::uint64_t, std::uint64_t>>
            files; ///< their ids and those of their copies, which follow each other
        std::unordered_map<std::uint64_t, std::uint64_t> ids; ///< the same
        std::uint64_t text = 0;                               ///< as text_bytes_
    };
    /// Throws std::bad_alloc.
    tree find_tree();
    /// The copies, by their ids. Throws std::bad_alloc.
    std::unordered_map<std::uint64_t, node> copy_tree(const tree& what);
    result<const node*> find_snapshot(const storage::request& r, std::string_view name) const;
    result<storage::change> end_snapshot(const storage::request& r, std::string_view name);
    /// The rights to the directory of snapshots are those to the root.
    void match_snapshots_to_root();
    /// Whether a peer has fresh memory of some of the bytes: what it takes in later would undo a change of them.
    static bool is_apart(const node& n, std::uint64_t offset, std::uint64_t length) noexcept;
    /// What a copy takes room for of these bytes, which are to be changed: such as snapshots alone have then.
    static std::uint64_t kept_blocks(const node& n, std::uint64_t offset, std::uint64_t length) noexcept;
    result<storage::change> take_away(const storage::request& r, const storage::handle& directory,
                                      std::string_view name, bool is_rmdir);
    /// `may_cut`: `who` has it open for writing.
    result<void> apply(node& n, const storage::set_attributes& set, const storage::credential& who,
                       bool may_cut = false);
    void resize(node& n, std::uint64_t size);
    static void forget_behind_end(node& n) noexcept;
    /// What stands from a file's old end to where the new bytes begin, in memory that somebody has mapped.
    enum class between : bool {
        is_zeros,
        /// or what a peer has written there, and will tell of later: who has it mapped need not let it go for a write behind it
        is_as_peers_left_it
    };
    /// It has `size` bytes at least from now on; those from its old end to `from` are zeros, or as `what` says.
    static void grow(node& n, std::uint64_t from, std::uint64_t size, between what = between::is_zeros);
    /// 0, or why `who` may not take the victim's name out of the directory.
    static int refuses_removal(const node& directory, const node& victim,
                               const storage::credential& who) noexcept; // acls.cpp
    void lose_name(node& n);
    /// Forgets it if it has neither a name nor an open.
    void release(node& n) noexcept;
    /// Frees some files of a snapshot that has ended. Whether there are more.
    bool free_some() noexcept;
    /// The ones before this, with turns of the mutex for others between them.
    task<void> free_ended();
    /// Of a snapshot that has ended, and not freed yet: nobody finds it but who has it open.
    bool has_ended(const node& n) const noexcept;
    unsigned access_of(const node& n, const storage::credential& who, unsigned wanted) const noexcept;
    /// Bytes of max_bytes that nothing has taken: file data, names, targets of symbolic links.
    std::uint64_t free_bytes() const noexcept;
    /// What a name costs: it stands in two tables.
    static std::uint64_t cost_of(std::string_view name) noexcept { return name_cost + 2 * name.size(); }
    static std::uint64_t cost_of_xattr(std::string_view name, std::size_t size) noexcept
    {
        return cost_of(name) + size;
    }
    static std::uint64_t cost_of_xattrs(const node& n) noexcept;
    static std::uint64_t cost_of_acl(const node& n) noexcept
    {
        return n.acl == nullptr ? 0 : n.acl->size() * sizeof(storage::ace);
    }
    /// 0, or why the file can't have such a list.
    int refuses_acl(const node& n, std::span<const storage::ace> list) const noexcept;
    /// Gives it the list, whatever it had, and the mode that goes with it and that `who` may set.
    void set_acl(node& n, storage::access_list list, const storage::credential& who);
    /// What it inherits, if its directory hands anything on; `mode` is what its creation said, if anything.
    void inherit_acl(node& n, const node& directory, std::optional<std::uint32_t> mode);
    void add_name(node& directory, std::string_view name, std::uint64_t fileid);
    /// By the newest name of each, from the root on; empty where one of these is gone.
    std::string path_of(const node& n) const;
    void take_name(node& directory, std::string_view name);

    bool refuses_changes() const noexcept { return refuses_changes_.load(std::memory_order_relaxed); }

    const memfs_options options_;
    std::atomic<bool> refuses_changes_;
    storage::filesystem_info info_;
    std::uint64_t instance_;
    const std::shared_ptr<file_memory> storage_;
    std::mutex& mutex_;
    arena& memory_;
    std::unordered_map<std::uint64_t, node> nodes_;
    std::uint64_t next_id_ = snapshots_id + 1; ///< never used twice, so a handle needs no generation
    std::uint64_t text_bytes_ = 0;             ///< of names, targets, extended attributes and ACLs
    struct snapshot {
        std::uint64_t end = 0; ///< its files have the ids from its root's up to here
        std::uint32_t taker = 0;
        std::uint64_t holding_back = 0; ///< who want nobody to map one of these
    };
    using snapshot_map = std::map<std::uint64_t, snapshot>; // by their roots
    /// nullptr: the file is in none.
    const snapshot* snapshot_of(std::uint64_t id) const noexcept;
    snapshot_map snapshots_;
    snapshot_map ended_;           ///< by the first file that is not freed
    std::uint64_t kept_files_ = 0; ///< that are no files of the live tree; the directory of snapshots, too
    std::uint64_t kept_text_ = 0;  ///< of text_bytes_, theirs
    std::uint64_t mapped_ = 0;     ///< mappings that are out, but for those of snapshots
    std::uint64_t fresh_blocks_ = 0, taken_in_ = 0; ///< as in snapshot_counts
    std::uint64_t holding_back_ = 0;                ///< who want none to be
};

/// Keeps a node.
class backend::pin final : public storage::open_file {
public:
    /// With the mutex held.
    pin(backend& of, node& n, const storage::credential& opener, unsigned granted)
        : open_file(opener, granted), of_(of), node_(n)
    {
        ++node_.opens;
    }
    ~pin() override
    {
        const std::lock_guard lock(of_.mutex_);
        --node_.opens;
        of_.release(node_);
    }
    std::string path_now() const override
    {
        const std::lock_guard lock(of_.mutex_);
        return of_.path_of(node_);
    }

private:
    backend& of_;
    node& node_;
};

} // namespace verbena::memfs
