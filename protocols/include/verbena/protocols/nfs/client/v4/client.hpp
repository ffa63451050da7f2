// SPDX-License-Identifier: Apache-2.0
// A client of NFS versions 4.1 and 4.2 (RFC 8881, 7862) over any RPC transport: names, attributes and directories. file.hpp has open files.
#pragma once

#include <verbena/protocols/files/byte_ranges.hpp>
#include <verbena/protocols/files/types.hpp>
#include <verbena/protocols/nfs/client/v4/session.hpp>
#include <verbena/protocols/nfs/user_names.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

class file;
struct file_locks;
struct server_open;

/// A file handle that owns its bytes.
class known_handle {
public:
    known_handle() = default;
    /// Of more than max_handle_size bytes none is kept.
    explicit known_handle(std::span<const std::byte> bytes) noexcept
        : size_(bytes.size() <= max_handle_size ? static_cast<std::uint32_t>(bytes.size()) : 0)
    {
        if (size_ != 0)
            std::memcpy(data_.data(), bytes.data(), size_);
    }
    /// As the server made it. Valid as long as the handle.
    std::span<const std::byte> bytes() const noexcept { return {data_.data(), size_}; }
    bool empty() const noexcept { return size_ == 0; }

    friend bool operator==(const known_handle& a, const known_handle& b) noexcept
    {
        return a.size_ == b.size_ && std::memcmp(a.data_.data(), b.data_.data(), a.size_) == 0;
    }

private:
    std::uint32_t size_ = 0;
    std::array<std::byte, max_handle_size> data_{};
};

/// What is known of a file. What the server does not tell is zero.
struct file_attributes {
    static constexpr std::uint32_t nobody =
        65534; ///< an owner whose name is no number, unless it was looked up

    nfs_ftype4 type = nfs_ftype4::reg; ///< what kind of file it is
    std::uint32_t mode = 0;            ///< permission bits
    std::uint32_t links = 0;           ///< names of the inode
    std::uint32_t uid = nobody;        ///< the owner
    std::uint32_t gid = nobody;        ///< the group
    std::uint64_t size = 0;            ///< bytes
    std::uint64_t used = 0;            ///< bytes
    specdata4 device;                  ///< of a device file
    fsid4 fsid;                        ///< of its file system
    std::uint64_t fileid = 0;          ///< within that
    changeid4 change = 0;              ///< another number after each change
    nfstime4 atime;
    nfstime4 mtime;
    nfstime4 ctime;
};

/// What is asked of each file.
inline constexpr bitmap4 file_attribute_numbers = {
    attribute::type,        attribute::change,        attribute::size,       attribute::fsid,
    attribute::fileid,      attribute::mode,          attribute::numlinks,   attribute::owner,
    attribute::owner_group, attribute::rawdev,        attribute::space_used, attribute::time_access,
    attribute::time_modify, attribute::time_metadata,
};

/// A file as the server names and describes it.
struct node {
    known_handle handle;
    file_attributes attributes;
};

/// Attributes to be set; what has no value stays.
struct new_attributes {
    std::optional<std::uint32_t> mode; ///< permission bits
    std::optional<std::uint64_t> size; ///< bytes
    std::optional<std::uint32_t> uid;  ///< the owner
    std::optional<std::uint32_t> gid;  ///< the group
    std::optional<settime4> atime;
    std::optional<settime4> mtime;
};

/// A name, and what stands there.
struct directory_entry {
    std::string name;          ///< as the server has it
    std::optional<node> found; ///< where it was asked for and the server could tell
};

/// One page of a directory, and where the next one begins.
struct directory_page {
    std::vector<directory_entry> entries; ///< without "." and ".."
    bool eof = false;                     ///< this was the last page
    std::uint64_t cookie = 0;             ///< for the next page
    verifier4 verifier{};                 ///< likewise
};

/// How much room a file system has.
struct file_system_space {
    std::uint64_t total = 0;           ///< bytes, as the next two
    std::uint64_t free = 0;            ///< that nobody uses
    std::uint64_t available = 0;       ///< that this caller may still use
    std::uint64_t files = 0;           ///< inodes
    std::uint64_t files_free = 0;      ///< inodes that nobody uses
    std::uint64_t files_available = 0; ///< inodes that this caller may still use
};

/// What open() does where the name is there.
enum class open_how : std::uint8_t {
    unchecked, ///< what is there is opened, and cut only if a size of 0 is set
    guarded,   ///< what is there is NFS4ERR_EXIST
    exclusive, ///< EXCLUSIVE4_1: guarded, but asked again with the same verifier it succeeds
};

/// What has layouts of a client's files: pnfs/layout_user.hpp. On the client's shard.
class layout_holder {
public:
    /// In the middle of a callback: what it takes is done beside.
    virtual nfsstat4 recalled(const CB_LAYOUTRECALL4args& args) = 0;
    /// Of the layouts, at most `most` may stay.
    virtual void keep_at_most(std::size_t most) = 0;
    /// As reclaimer's. Completes when: the server has answered. On cancel: as client_session's. Errors: none. Lifetime: the client outlives it.
    /// Shard: the client's.
    virtual task<void> free_what_is_revoked() = 0;
    /// As reclaimer's.
    virtual void cannot_be_called() = 0;
    /// Before this client changes bytes of the file by NFS, and behind it.
    virtual void changed(const known_handle& object) noexcept = 0;

protected:
    ~layout_holder() = default;
};

/// The files of one server. Any number of calls may run at once.
///
/// This holds for all its tasks. Completes when: the server has answered; a task that takes several calls makes them one after
/// another. On cancel: as client_session's. Errors: those of client_session, and ENAMETOOLONG. Lifetime: the client and what is passed by reference or view outlive
/// the task; files are closed or destroyed before the client. Shard: the transport's.
///
/// After a restart of the server open files are reclaimed, with their delegations; those that can't be are opened again when they are next used.
class client final : private reclaimer {
public:
    static constexpr std::size_t max_name = client_limits::max_name;
    static constexpr unsigned max_links = client_limits::max_links;
    static constexpr std::size_t listing_bytes = client_limits::listing_bytes;

    /// As client_session's constructor.
    client(rpc::client_transport& transport, const identity& who, std::string name = {},
           minor_versions spoken = {}, callback_service* callbacks = nullptr);
    ~client() override;

    /// The session that the calls are part of: for calls that this class does not make.
    client_session& session() noexcept { return session_; }
    /// What the calls go over.
    rpc::client_transport& transport() noexcept { return session_.transport(); }
    /// Makes the session.
    task<result<void>> open_session() { return session_.open(); }
    /// As client_session::close(), and first closes what was opened for who was cancelled meanwhile, and gives delegations back.
    task<void> close();

    /// Has each OPEN ask for a delegation, and keeps up to `most` of them, with the open that brought each: while one is there, open() and
    /// close() of its file make no call, but for one that asks for attributes where this client has changed the file since they were looked at. Each
    /// open() compares its handle with those of all of them: some hundreds are meant. 0, as at the beginning: none is asked for, and those that are there go back. Nothing comes of it
    /// without a callback_service. What is kept counts against the server's limits of opens and delegations. Needs an open session if it
    /// makes the number smaller.
    void use_delegations(std::size_t most);
    /// `holder` gets the recalls of layouts, and the server hears that this client uses them; before open_session(). nullptr: it gets no more of
    /// them.
    void use_layouts(layout_holder* holder) noexcept
    {
        layouts_ = holder;
        if (holder != nullptr)
            session_.ask_for_layouts();
    }
    /// Has owners that the server calls by names looked up in `names`, which outlives this and is of the transport's shard; those that it
    /// does not know remain file_attributes::nobody. A server that wants no numbers from setattr() (BADOWNER) gets names. nullptr, as at
    /// the beginning: there are numbers alone.
    void use_names(user_names* names) noexcept { names_ = names; }
    /// Delegations that opens are answered by.
    std::size_t delegations() const noexcept { return delegated_.size(); }
    /// Opens that a delegation answered, and delegations that went back.
    std::uint64_t opens_without_call() const noexcept { return opens_here_; }
    /// Delegations that went back to the server so far.
    std::uint64_t returned_delegations() const noexcept { return returned_; }

    /// The root of what the server exports (PUTROOTFH).
    task<result<node>> root();
    /// Attributes as the server has them now; no delegation answers.
    task<result<file_attributes>> getattr(const known_handle& object);
    /// The size is set without an open, which deny bits of others may refuse; file::truncate() has one.
    task<result<void>> setattr(const known_handle& object, new_attributes attributes);
    /// One name in a directory. ".." is the directory above (LOOKUPP).
    task<result<node>> lookup(const known_handle& directory, std::string_view name);
    /// Looks up all components in one call where no symbolic link is on the way. Relative links are followed, the last
    /// component only if `follow_last`; an absolute one leads out of what the client can see: ELOOP.
    task<result<node>> walk(const known_handle& start, std::string_view path, bool follow_last);
    /// Which bits of access4 the caller has.
    task<result<std::uint32_t>> access(const known_handle& object, std::uint32_t wanted);
    /// The target of a symbolic link.
    task<result<std::string>> readlink(const known_handle& link);
    /// Makes a directory; NFS4ERR_EXIST if the name is there.
    task<result<node>> mkdir(const known_handle& directory, std::string_view name, new_attributes attributes);
    /// Makes a symbolic link to `target`, which is not looked at.
    task<result<node>> symlink(const known_handle& directory, std::string_view name, std::string_view target,
                               new_attributes attributes);
    /// A file or an empty directory.
    task<result<void>> remove(const known_handle& directory, std::string_view name);
    /// Gives a file another name, in the place of what has it, as rename(2) does.
    task<result<void>> rename(const known_handle& from_directory, std::string_view from,
                              const known_handle& to_directory, std::string_view to);
    /// Gives a file one name more.
    task<result<void>> link(const known_handle& object, const known_handle& directory, std::string_view name);
    /// The page behind `before`; a default page stands before the first one. `plus`: with handles and attributes.
    task<result<directory_page>> readdir(const known_handle& directory, const directory_page& before,
                                         bool plus);
    /// The whole directory. Fails with value_too_large when it would hold more than `most` bytes, and with protocol_error when the
    /// server's cookies lead round in a circle.
    task<result<std::vector<directory_entry>>> list(const known_handle& directory, bool plus,
                                                    std::size_t most = listing_bytes);
    /// How much room the file system of `object` has.
    task<result<file_system_space>> space(const known_handle& object);
    /// Asks the file system of `object` for the sizes that limits() tells.
    task<result<void>> learn_limits(const known_handle& object);

    /// Opens a file that is there; `access` has bits of share4::access_both, and nobody is denied anything. On cancel: the wait ends, OPEN is
    /// not sent again, and what the server opens all the same is closed. Under a delegation (use_delegations()) it completes at once, or
    /// when the server has told the attributes of a file that this client has changed, or whose owners' names were not known yet, and the file's node()
    /// has those, not those of `object`.
    task<result<std::unique_ptr<file>>> open(const node& object, std::uint32_t access);
    /// Makes the file `name` of `directory` and opens it with `access`, as open().
    task<result<std::unique_ptr<file>>> create(const known_handle& directory, std::string_view name,
                                               new_attributes attributes, open_how how,
                                               std::uint32_t access = share4::access_both,
                                               verifier4 verifier = {});

    /// Largest READ and WRITE, within what the session's channel takes.
    struct transfer_limits {
        std::uint32_t read = 64 * 1024;      ///< bytes
        std::uint32_t write = 64 * 1024;     ///< bytes
        std::uint32_t directory = 32 * 1024; ///< bytes of one READDIR
    };
    const transfer_limits& limits() const noexcept { return limits_; }

private:
    friend class file;
    struct opening;
    class asking;

    task<result<void>> reclaim() override;
    task<void> free_what_is_revoked() override;
    nfsstat4 recalled(const CB_RECALL4args& args) override;
    nfsstat4 recalled(const CB_RECALL_ANY4args& args) override;
    nfsstat4 tell(const CB_GETATTR4args& args, attributes& out) override;
    nfsstat4 layout_recalled(const CB_LAYOUTRECALL4args& args) override;
    void cannot_be_called() override;
    void notified(const CB_NOTIFY_LOCK4args& args) noexcept override;
    task<result<std::unique_ptr<file>>> finish(std::shared_ptr<opening> o);
    void run_beside(task<void> made);
    task<void> perform(std::shared_ptr<opening> o);
    task<void> ask_to_open(std::shared_ptr<opening> o, std::optional<asking>& under_way);
    task<void> give_up(std::shared_ptr<opening> o);
    task<void> free_stateid(stateid4 revoked);
    bool needs_names(const file_attributes& told) const noexcept
    {
        return names_ != nullptr &&
               (told.uid == file_attributes::nobody || told.gid == file_attributes::nobody);
    }
    task<result<node>> node_from(const GETFH4res& object, const GETATTR4res& told);
    task<void> name_owners(const fattr4& raw, file_attributes& to);
    task<void> name_owners(const attributes& values, file_attributes& to, std::optional<time_point>& until);
    task<result<void>> setattr_by_name(const known_handle& object, const new_attributes& attributes);
    task<result<node>> walk_by_steps(known_handle start, std::string_view path, bool follow_last);
    task<result<std::unique_ptr<file>>> open_there(const node& object, std::uint32_t access);
    std::shared_ptr<server_open> new_open(std::uint32_t access);
    void forget(const server_open& gone) noexcept;
    std::shared_ptr<server_open> find(std::uint64_t owner) const noexcept;
    task<result<void>> reclaim(std::shared_ptr<server_open> lost);

    // delegations.cpp
    struct early_recall {
        known_handle object;
        stateid4 id;
        std::uint64_t before; // the number of the next OPEN
    };
    // A delegation that goes back, or went back lately.
    struct returned_delegation {
        stateid4 id;
        std::uint64_t before;    // OPENs of lower numbers may bring it still
        bool came_again = false; // with an OPEN that may have run behind DELEGRETURN
    };
    std::uint32_t want_for(std::uint32_t access) const noexcept;
    std::shared_ptr<server_open> delegated(const known_handle& object) const noexcept;
    std::shared_ptr<server_open> good_for(const node& object, std::uint32_t access) const noexcept;
    std::unique_ptr<file> open_here(const std::shared_ptr<server_open>& o, std::uint32_t access);
    task<result<void>> look_at(std::shared_ptr<server_open> o);
    void changed(const known_handle& object, server_open* by) noexcept;
    void changed_for_delegations(const known_handle& object, server_open* by) noexcept;
    task<void> take_open(std::shared_ptr<server_open> o, const OPEN4res& res, std::uint32_t access,
                         std::uint64_t number);
    task<void> take_delegation(std::shared_ptr<server_open> o, const OPEN4res& res, file_attributes known,
                               std::uint64_t number);
    bool is_wanted_back(const open_delegation4& given) noexcept;
    bool is_here(const known_handle& object, const open_delegation4& given, bool wanted_back,
                 std::uint64_t number);
    void set_type(server_open& o, const open_delegation4& given) const noexcept;
    task<void> commit_users(std::shared_ptr<server_open> o);
    void make_room_for_delegations();
    template<class F>
    std::shared_ptr<server_open> least_needed(F f) const;
    void begin_return(std::shared_ptr<server_open> o);
    task<void> give_back(std::shared_ptr<server_open> o);
    task<void> give_all_back(std::shared_ptr<server_open> o);
    task<void> claim(std::shared_ptr<server_open> o);
    void drop_delegation(std::shared_ptr<server_open> o);
    task<void> close_unused(std::shared_ptr<server_open> o);
    task<result<void>> close_open(std::shared_ptr<server_open> o);
    task<void> return_delegation(known_handle object, stateid4 delegation);
    task<void> return_for_good(known_handle object, stateid4 delegation);
    task<void> return_once_more(known_handle object, stateid4 delegation);
    task<void> return_unknown(known_handle object, stateid4 delegation);
    // file_locks.cpp
    struct locking;
    struct unlocking;
    task<void> perform_lock(std::shared_ptr<locking> k);
    task<result<void>> send_lock(std::shared_ptr<locking> k);
    task<result<void>> lock_there(std::shared_ptr<locking> k, files::locked_range what, bool undoes);
    void give_up(locking& k) noexcept;
    task<result<void>> undo_lock(std::shared_ptr<locking> k);
    task<void> undo_late(std::shared_ptr<locking> k);
    task<result<void>> settle(std::shared_ptr<server_open> o, std::shared_ptr<file_locks> l);
    task<void> perform_unlock(std::shared_ptr<unlocking> k);
    task<void> send_unlock(std::shared_ptr<unlocking> k);
    task<void> unlock_late(std::shared_ptr<server_open> o, std::shared_ptr<file_locks> l);
    task<result<void>> unlock_there(std::shared_ptr<server_open> o, std::shared_ptr<file_locks> l,
                                    files::byte_range bytes, bool undoes);
    task<result<void>> reclaim_locks(std::shared_ptr<server_open> o, std::shared_ptr<file_locks> l);

    std::uint64_t begin_asking();
    std::uint64_t oldest_asking() const noexcept { return asking_.empty() ? next_asking_ : asking_.front(); }
    void end_asking(std::uint64_t number) noexcept;
    void end_opening() noexcept;

    client_session session_;
    transfer_limits limits_;
    user_names* names_ = nullptr;
    layout_holder* layouts_ = nullptr;
    std::uint64_t owners_ = 0;
    std::vector<std::shared_ptr<server_open>> opens_;
    unsigned openings_ = 0; // and what else runs beside the calls and must end before the session does
    event all_opened_;      // while there are none, for who waits there

    std::size_t most_delegations_ = 0;
    std::vector<std::shared_ptr<server_open>> delegated_; // those of opens_ that opens are answered by
    std::vector<returned_delegation> going_back_;
    std::vector<std::uint64_t> asking_; // numbers of OPENs that may bring a delegation, under way
    std::uint64_t next_asking_ = 0;
    std::vector<early_recall> early_recalls_; // meanwhile, of stateids that nobody knows
    std::uint64_t uses_ = 0;
    std::uint64_t opens_here_ = 0;
    std::uint64_t returned_ = 0;
};

/// The text of an owner that is a number, as Linux sends it, or file_attributes::nobody.
std::uint32_t owner_number(std::string_view owner) noexcept;
/// What `raw` tells; bad_message if it can't be read.
result<file_attributes> read_attributes(const fattr4& raw) noexcept;

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
