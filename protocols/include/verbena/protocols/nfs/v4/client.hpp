// SPDX-License-Identifier: Apache-2.0
// A client of NFS versions 4.1 and 4.2 (RFC 8881, 7862) over any RPC transport: names, attributes and directories. file.hpp has open files.
#pragma once

#include <verbena/protocols/nfs/v4/client_session.hpp>

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
    static constexpr std::uint32_t nobody = 65534; ///< an owner whose name is no number

    nfs_ftype4 type = nfs_ftype4::reg;
    std::uint32_t mode = 0; ///< permission bits
    std::uint32_t links = 0;
    std::uint32_t uid = nobody;
    std::uint32_t gid = nobody;
    std::uint64_t size = 0;
    std::uint64_t used = 0; ///< bytes
    specdata4 device;
    fsid4 fsid;
    std::uint64_t fileid = 0;
    changeid4 change = 0;
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
    std::optional<std::uint32_t> mode;
    std::optional<std::uint64_t> size;
    std::optional<std::uint32_t> uid;
    std::optional<std::uint32_t> gid;
    std::optional<settime4> atime;
    std::optional<settime4> mtime;
};

struct directory_entry {
    std::string name;
    std::optional<node> found; ///< where it was asked for and the server could tell
};

/// One page of a directory, and where the next one begins.
struct directory_page {
    std::vector<directory_entry> entries;
    bool eof = false;
    std::uint64_t cookie = 0;
    verifier4 verifier{};
};

struct file_system_space {
    std::uint64_t total = 0; ///< bytes, as the next two
    std::uint64_t free = 0;
    std::uint64_t available = 0;
    std::uint64_t files = 0;
    std::uint64_t files_free = 0;
    std::uint64_t files_available = 0;
};

enum class open_how : std::uint8_t {
    unchecked, ///< what is there is opened, and cut only if a size of 0 is set
    guarded,   ///< what is there is NFS4ERR_EXIST
    exclusive, ///< EXCLUSIVE4_1: guarded, but asked again with the same verifier it succeeds
};

/// The files of one server. Any number of calls may run at once.
///
/// This holds for all its tasks. Completes when: the server has answered; a task that takes several calls makes them one after
/// another. On cancel: as client_session's. Errors: those of client_session, and ENAMETOOLONG. Lifetime: the client and what is passed by reference or view outlive
/// the task; files are closed or destroyed before the client. Shard: the transport's.
///
/// After a restart of the server open files are reclaimed; those that can't be are opened again when they are next used.
class client final : private reclaimer {
public:
    static constexpr std::size_t max_name = nfs::client::max_name;
    static constexpr unsigned max_links = nfs::client::max_links;
    static constexpr std::size_t listing_bytes = nfs::client::listing_bytes;

    /// As client_session's constructor.
    client(rpc::client_transport& transport, const identity& who, std::string name = {},
           minor_versions spoken = {});
    ~client() override;

    client_session& session() noexcept { return session_; }
    rpc::client_transport& transport() noexcept { return session_.transport(); }
    /// Makes the session.
    task<result<void>> open_session() { return session_.open(); }
    /// As client_session::close(), and closes first what was opened for who was cancelled meanwhile.
    task<void> close();

    task<result<node>> root();
    task<result<file_attributes>> getattr(const known_handle& object);
    /// The size is set without an open, which deny bits of others may refuse; file::truncate() has one.
    task<result<void>> setattr(const known_handle& object, new_attributes attributes);
    task<result<node>> lookup(const known_handle& directory, std::string_view name);
    /// Looks up all components in one call where no symbolic link is on the way. Relative links are followed, the last
    /// component only if `follow_last`; an absolute one leads out of what the client can see: ELOOP.
    task<result<node>> walk(const known_handle& start, std::string_view path, bool follow_last);
    /// Which bits of access4 the caller has.
    task<result<std::uint32_t>> access(const known_handle& object, std::uint32_t wanted);
    task<result<std::string>> readlink(const known_handle& link);
    task<result<node>> mkdir(const known_handle& directory, std::string_view name, new_attributes attributes);
    task<result<node>> symlink(const known_handle& directory, std::string_view name, std::string_view target,
                               new_attributes attributes);
    /// A file or an empty directory.
    task<result<void>> remove(const known_handle& directory, std::string_view name);
    task<result<void>> rename(const known_handle& from_directory, std::string_view from,
                              const known_handle& to_directory, std::string_view to);
    task<result<void>> link(const known_handle& object, const known_handle& directory, std::string_view name);
    /// The page behind `before`; a default page stands before the first one. `plus`: with handles and attributes.
    task<result<directory_page>> readdir(const known_handle& directory, const directory_page& before,
                                         bool plus);
    /// The whole directory. Fails with value_too_large when it would hold more than `most` bytes, and with protocol_error when the
    /// server's cookies lead round in a circle.
    task<result<std::vector<directory_entry>>> list(const known_handle& directory, bool plus,
                                                    std::size_t most = listing_bytes);
    task<result<file_system_space>> space(const known_handle& object);
    /// Asks the file system of `object` for the sizes that limits() tells.
    task<result<void>> learn_limits(const known_handle& object);

    /// Opens a file that is there; `access` has bits of share4::access_both, and nobody is denied anything. On cancel: the wait ends, OPEN is
    /// not sent again, and what the server opens all the same is closed.
    task<result<std::unique_ptr<file>>> open(const node& object, std::uint32_t access);
    /// Makes the file `name` of `directory` and opens it with `access`, as open().
    task<result<std::unique_ptr<file>>> create(const known_handle& directory, std::string_view name,
                                               new_attributes attributes, open_how how,
                                               std::uint32_t access = share4::access_both,
                                               verifier4 verifier = {});

    /// Largest READ and WRITE, within what the session's channel takes.
    struct transfer_limits {
        std::uint32_t read = 64 * 1024;
        std::uint32_t write = 64 * 1024;
        std::uint32_t directory = 32 * 1024;
    };
    const transfer_limits& limits() const noexcept { return limits_; }

private:
    friend class file;
    struct opening;

    task<result<void>> reclaim() override;
    task<void> free_what_is_revoked() override;
    task<result<std::unique_ptr<file>>> finish(std::shared_ptr<opening> o);
    task<void> perform(std::shared_ptr<opening> o);
    task<void> give_up(std::shared_ptr<opening> o);
    task<void> free_stateid(stateid4 revoked);
    task<result<node>> walk_by_steps(known_handle start, std::string_view path, bool follow_last);
    task<void> return_delegation(known_handle object, stateid4 delegation);
    std::uint64_t next_owner() noexcept { return ++owners_; }
    void hold(file& opened) { files_.push_back(&opened); }
    void forget(const file& gone) noexcept { std::erase(files_, &gone); }
    file* find(std::uint64_t owner) noexcept;

    client_session session_;
    transfer_limits limits_;
    std::uint64_t owners_ = 0;
    std::vector<file*> files_; // open ones
    unsigned openings_ = 0;    // that are under way
    event all_opened_;         // while there are none, for who waits there
};

/// The text of an owner that is a number, as Linux sends it, or file_attributes::nobody.
std::uint32_t owner_number(std::string_view owner) noexcept;
/// What `raw` tells; bad_message if it can't be read.
result<file_attributes> read_attributes(const fattr4& raw) noexcept;

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
