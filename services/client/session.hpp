// SPDX-License-Identifier: Apache-2.0
// A connection to the server that a URL names, and the way from there to the file.
#pragma once

#include "failure.hpp"
#include "remote.hpp"
#include "runtime.hpp"
#include "url.hpp"

#include <verbena/core/result.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/nfs/client/v3/client.hpp>
#include <verbena/protocols/nfs/client/v3/mount.hpp>
#include <verbena/protocols/rpc/client.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace verbena::cli {

/// The server has not got the program, the version or the procedure that it was asked for.
bool unavailable(const error& e) noexcept;

/// Tells on the standard error that a server has fallen silent or puts calls off, and that it answers again.
class server_notice final : public rpc::client_watch, public nfs::put_off_watch {
public:
    server_notice(std::string server, bool hard) : server_(std::move(server)), hard_(hard) {}
    void on_silence(const error& cause) noexcept override;
    void on_answer() noexcept override;
    void on_put_off(const error& cause) noexcept override;
    void on_service() noexcept override;

private:
    std::string server_;
    bool hard_;
};

/// Shard-local. close() before it goes.
class session {
public:
    session(runtime& r, url where);

    /// Each connect and each call fails after `limit`, whatever --soft and --timeout say. Before connect().
    void give_up_after(std::chrono::seconds limit) noexcept { limit_ = limit; }
    /// Connects to the NFS port, at once or never: a wrong address is an error.
    task<failure> connect();
    /// connect(), then mount_connected().
    task<failure> mount();
    /// After connect(): makes a session of version 4, or finds the export that the URL's path lies in. If the URL names no version, the
    /// server's highest is spoken from then on.
    task<failure> mount_connected();
    /// After connect(), without a session: NULL of version 4, and of 3 where that is not served. nfs() may be asked what needs no
    /// mount afterwards. Fails with what NULL failed with.
    task<result<void>> settle();
    /// Tells the server that what mount() mounted is no longer used (UMNT, DESTROY_SESSION), for a second at most, and disconnects.
    task<void> close();

    remote& nfs() noexcept { return *remote_; }
    rpc::client_transport& transport() noexcept { return *transport_; }
    /// Where MOUNT is asked; after mount_transport() succeeded.
    task<result<nfs::mount_client>> mounts();
    /// What the user reads when mounts(), or what was asked of MOUNT, failed with `why` and no status of MOUNT.
    failure without_mounts(const error& why) const;
    /// What he reads where the NFS port takes connections and never replied to a call, which failed with `why`.
    failure without_reply(const error& why) const;
    /// What he reads where the server has no version of NFS that may be spoken.
    failure without_version(const error& why) const;
    const cli::url& where() const noexcept { return url_; }
    /// What is spoken. `highest` until mount() or settle(), which alone leaves open which minor version it is.
    nfs_version version() const noexcept { return version_; }
    /// What version 4 has for RDMA layouts, or nullptr where none are wanted or another version is spoken.
    nfs::v4::pnfs::layout_user* layouts() noexcept { return layouts_.get(); }
    /// Version 4's, for who needs what only that has. After mount(), where no other version is spoken.
    nfs::v4::client& nfs4() noexcept { return *nfs4_; }
    /// Version 3's, for who needs what only that has.
    nfs::client& nfs3() noexcept { return *nfs3_; }
    const nfs::mounted& mounted() const noexcept { return mounted_; }
    /// After mount(): the root of the export, or in version 4 of the server, and what of the URL's path lies below it.
    const handle& root() const noexcept { return root_; }
    const std::string& rest() const noexcept { return rest_; }
    /// Looks a path up below root(). ENOENT says of a path whose export is not there how version 3 would find it, if nobody has chosen
    /// the version.
    task<result<node>> walk(std::string_view path, bool follow_last = true);
    /// Whether something new may be put into `directory`. Not into the root of a server of version 4 by a path of which not even the first
    /// name is there, if nobody has chosen the version and in version 3 the path is in an export of its own. MOUNT is asked for that.
    task<result<void>> may_make_in(handle directory);

private:
    task<bool> is_in_another_export();
    void speak3();
    void speak4();
    task<failure> mount3();
    task<failure> mount4();
    task<failure> without4(const error& why);
    task<failure> connect_more();
    task<result<std::unique_ptr<rpc::client_transport>>> connect_tcp(std::uint16_t port,
                                                                     std::string_view which = {});
    task<result<std::unique_ptr<rpc::client_transport>>> connect_nfs(std::uint16_t port,
                                                                     std::string_view which = {});
    task<result<std::uint16_t>> ask_rpcbind(std::uint32_t program, std::uint32_t version);
    /// `server` as notices name it.
    rpc::client_options client_options(std::string_view server);
    std::string cure_of(const error& e) const;
    duration jukebox_patience() const noexcept;

    runtime& runtime_;
    cli::url url_;
    nfs_version version_;
    nfs::identity identity_;
    std::optional<nfs::v4::callback_service>
        callbacks_; // for layouts; outlives the transports, as the next do
    std::vector<std::unique_ptr<server_notice>> notices_;
    std::unique_ptr<rpc::client_transport> transport_;
    std::vector<std::unique_ptr<rpc::client_transport>> more_; // that the session of version 4 goes over too
    std::unique_ptr<rpc::client_transport> mount_transport_;
    std::unique_ptr<nfs::client> nfs3_; // one of both
    std::unique_ptr<nfs::v4::client> nfs4_;
    std::unique_ptr<nfs::v4::pnfs::layout_user> layouts_;
    std::unique_ptr<remote> remote_; // over that one
    nfs::mounted mounted_;
    handle root_;
    std::string rest_;
    bool outside_ = false; // in version 4, which nobody chose, not even the first name of the path is there
    std::chrono::seconds limit_{0}; // 0: none
};

} // namespace verbena::cli
