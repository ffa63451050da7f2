// SPDX-License-Identifier: Apache-2.0
// A client of NFS version 3 (RFC 1813) over any RPC transport. Files are named by handles; walk() and
// the mount protocol (mount.hpp) find the first ones, file.hpp keeps written data until it is stable.
#pragma once

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/nfs/client/identity.hpp>
#include <verbena/protocols/nfs/client/limits.hpp>
#include <verbena/protocols/nfs/client/patience.hpp>
#include <verbena/protocols/nfs/client/written_file.hpp>
#include <verbena/protocols/nfs/wire/v3/arguments.hpp>
#include <verbena/protocols/nfs/wire/v3/results.hpp>
#include <verbena/protocols/nfs/wire/v3/types.hpp>
#include <verbena/protocols/rpc/client.hpp>
#include <verbena/protocols/rpc/payload.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs {

/// A file as the server names and describes it.
struct node {
    v3::nfs_fh3 handle;    ///< by which the server knows it
    v3::fattr3 attributes; ///< when the server told of it
};

/// A name, and what stands there.
struct directory_entry {
    std::uint64_t fileid = 0;          ///< a number of the file within its file system
    std::string name;                  ///< as the server has it
    std::optional<v3::nfs_fh3> handle; ///< where the server gave it
    v3::post_op_attr attributes;       ///< where the server gave them
};

/// One page of a directory, and where the next one begins.
struct directory_page {
    std::vector<directory_entry> entries; ///< in the server's order
    bool eof = false;                     ///< this was the last page
    std::uint64_t cookie = 0;             ///< for the next page
    v3::cookieverf3 verifier{};           ///< likewise
};

/// What read() brought.
struct read_result {
    rpc::payload data;           ///< views into what was received
    bool eof = false;            ///< there is nothing behind these bytes
    v3::post_op_attr attributes; ///< where the server gave them
};

/// Whether `name` can be of an entry of a directory: not empty, and without '/' and NUL. Servers may tell others.
bool is_name(std::string_view name) noexcept;

/// The procedures of one server. Any number of calls may run at once.
///
/// This holds for all its tasks. Completes when: the server has answered; a task that takes several calls makes them one after
/// another. On cancel: as rpc::client_transport::call(); a task that waits to ask again fails with NFS3ERR_JUKEBOX, one that
/// waits for memory with ENOMEM. What was called before stands. Errors: v3::nfsstat3 codes with the procedure's name, those of
/// the transport, bad_message for results that don't decode, protocol_error for results that contradict the call, ENAMETOOLONG.
/// Lifetime: the transport outlives the client, the client and what is passed by reference or view outlive the task. Shard: the
/// transport's.
///
/// NFS3ERR_JUKEBOX is asked again, for at most jukebox_patience, or what have_patience() says; once a call has waited so long in
/// vain, others are not asked again until the server does what it is asked.
class client {
public:
    static constexpr duration jukebox_patience = patience::usual;
    /// bytes; a longer name is ENAMETOOLONG without asking
    static constexpr std::size_t max_name = client_limits::max_name;
    static constexpr unsigned max_links = client_limits::max_links; ///< symbolic links that walk() follows
    static constexpr std::uint32_t max_page = 128 * 1024;           ///< bytes of one READDIR or READDIRPLUS

    /// Calls go over `transport`, which outlives it, with the credential of `who`. Nothing is called yet.
    client(rpc::client_transport& transport, const identity& who) noexcept : transport_(transport), who_(who)
    {
    }
    /// What the calls go over; it outlives the client.
    rpc::client_transport& transport() noexcept { return transport_; }
    /// How long a call that the server puts off is asked again, and who hears of it (nullptr: nobody; outlives the client).
    void have_patience(duration limit, put_off_watch* watch) noexcept { patience_.have(limit, watch); }
    /// As patience::spend().
    void spend_patience() noexcept { patience_.spend(); }

    /// Asks the server for nothing: whether it answers.
    task<result<void>> null();
    /// Attributes as the server has them now.
    task<result<v3::fattr3>> getattr(const v3::nfs_fh3& object);
    /// With `guard` it fails with NFS3ERR_NOT_SYNC unless that is the object's ctime.
    task<result<void>> setattr(const v3::nfs_fh3& object, const v3::sattr3& attributes,
                               std::optional<v3::nfstime3> guard = {});
    /// One name in a directory; ".." of an export's root is the server's affair.
    task<result<node>> lookup(const v3::nfs_fh3& directory, std::string_view name);
    /// Looks up one component after the other. Relative symbolic links on the way are followed, the last
    /// component only if `follow_last`; an absolute one leads out of what the client can see: ELOOP.
    task<result<node>> walk(const v3::nfs_fh3& start, std::string_view path, bool follow_last);
    /// Which bits of v3::access3 the caller has.
    task<result<std::uint32_t>> access(const v3::nfs_fh3& object, std::uint32_t wanted);
    /// The target of a symbolic link.
    task<result<std::string>> readlink(const v3::nfs_fh3& link);
    /// At most `count` bytes, and no more than the server's rtmax.
    task<result<read_result>> read(const v3::nfs_fh3& file, std::uint64_t offset, std::uint32_t count);
    /// Errors: EMSGSIZE for more than max_transfer.
    task<result<write_result>> write(const v3::nfs_fh3& file, std::uint64_t offset, rpc::payload data,
                                     v3::stable_how stable);
    /// Has the server put on stable storage what was written unstably; yields its verifier, which differs from
    /// the WRITEs' after a restart: then these are to be sent again (RFC 1813 3.3.21). `count` 0: to the end.
    task<result<v3::writeverf3>> commit(const v3::nfs_fh3& file, std::uint64_t offset, std::uint32_t count);
    /// GUARDED when `exclusive`, else UNCHECKED.
    task<result<node>> create(const v3::nfs_fh3& directory, std::string_view name,
                              const v3::sattr3& attributes, bool exclusive);
    /// EXCLUSIVE (RFC 1813 3.3.8): asked again with the same verifier it succeeds, even after a restart of the server,
    /// until the file is written to or a setattr() gives it the attributes that it was made without.
    task<result<node>> create_exclusive(const v3::nfs_fh3& directory, std::string_view name,
                                        const v3::createverf3& verifier);
    /// Makes a directory; NFS3ERR_EXIST if the name is there.
    task<result<node>> mkdir(const v3::nfs_fh3& directory, std::string_view name,
                             const v3::sattr3& attributes);
    /// Makes a symbolic link to `target`, which is not looked at.
    task<result<node>> symlink(const v3::nfs_fh3& directory, std::string_view name, std::string_view target,
                               const v3::sattr3& attributes);
    /// A FIFO, a socket, or a device with the numbers `device`; another type is NFS3ERR_BADTYPE.
    task<result<node>> mknod(const v3::nfs_fh3& directory, std::string_view name, v3::ftype3 type,
                             const v3::sattr3& attributes, v3::specdata3 device = {});
    /// Takes away a name that is no directory's.
    task<result<void>> remove(const v3::nfs_fh3& directory, std::string_view name);
    /// Takes an empty directory away.
    task<result<void>> rmdir(const v3::nfs_fh3& directory, std::string_view name);
    /// Gives a file another name, in the place of what has it, as rename(2) does.
    task<result<void>> rename(const v3::nfs_fh3& from_directory, std::string_view from,
                              const v3::nfs_fh3& to_directory, std::string_view to);
    /// Gives a file one name more.
    task<result<void>> link(const v3::nfs_fh3& file, const v3::nfs_fh3& directory, std::string_view name);
    /// The page behind `before`; a default page stands before the first one. `plus`: with handles and
    /// attributes, where the server knows READDIRPLUS.
    task<result<directory_page>> readdir(const v3::nfs_fh3& directory, const directory_page& before,
                                         bool plus);
    /// bytes of a whole directory, unless list() is told
    static constexpr std::size_t listing_bytes = client_limits::listing_bytes;
    /// The whole directory, without "." and "..". Fails with value_too_large when it would hold more than `most`
    /// bytes, and with protocol_error when the server's cookies lead round in a circle.
    task<result<std::vector<directory_entry>>> list(const v3::nfs_fh3& directory, bool plus,
                                                    std::size_t most = listing_bytes);
    /// How much room the file system has (RFC 1813 3.3.18).
    task<result<v3::FSSTAT3res>> fsstat(const v3::nfs_fh3& root);
    /// Also sets the sizes that limits() tells.
    task<result<v3::FSINFO3res>> fsinfo(const v3::nfs_fh3& root);

    /// Largest READ and WRITE, as fsinfo() found them and within what this client sends.
    struct transfer_limits {
        std::uint32_t read = 64 * 1024;      ///< bytes
        std::uint32_t write = 64 * 1024;     ///< bytes
        std::uint32_t directory = 32 * 1024; ///< bytes of one READDIR
    };
    static constexpr std::uint32_t max_transfer = client_limits::max_transfer; ///< bytes
    const transfer_limits& limits() const noexcept { return limits_; }

private:
    template<class Res>
    class answer;
    template<class Res, class Args>
    task<result<answer<Res>>> ask(v3::procedure procedure, const Args& args,
                                  const rpc::payload* data = nullptr);
    template<class Args>
    task<result<rpc::reply>> send(v3::procedure procedure, const Args& args, const rpc::payload* data);
    task<result<node>> complete_node(v3::nfs_fh3 directory, std::string_view name, v3::post_op_fh3 handle,
                                     v3::post_op_attr attributes);
    template<class Args, class Reader, class Entry>
    task<result<directory_page>> read_page(v3::procedure procedure, const Args& args);

    rpc::client_transport& transport_;
    identity who_;
    transfer_limits limits_;
    bool has_readdirplus_ = true;
    patience patience_;
};

} // namespace verbena::nfs

#pragma GCC visibility pop
