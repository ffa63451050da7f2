// SPDX-License-Identifier: Apache-2.0
#include "session.hpp"

#include "commands.hpp"

#include <verbena/core/net/net.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/protocols/nfs/wire/portmap.hpp>
#include <verbena/protocols/nfs/wire/v3/mount.hpp>
#include <verbena/protocols/nfs/wire/v3/types.hpp>
#include <verbena/protocols/rpcrdma/requester.hpp>
#include <verbena/protocols/rpcstream/stream_client.hpp>

#include <cstdio>
#include <unistd.h>

namespace verbena::cli {
namespace {

bool is_version_4(nfs_version v) noexcept { return v == nfs_version::v4_1 || v == nfs_version::v4_2; }

} // namespace

bool unavailable(const error& e) noexcept
{
    return e.code() == make_error_code(rpc::accept_status::program_unavailable) ||
           e.code() == make_error_code(rpc::accept_status::program_mismatch) ||
           e.code() == make_error_code(rpc::accept_status::procedure_unavailable);
}

void server_notice::on_silence(const error& cause) noexcept
try {
    const std::string why = cause.code() ? " (" + cause.message() + ")" : std::string();
    say(server_ + " does not answer" + why + ", still trying" + (hard_ ? "; --soft gives up" : ""));
} catch (const std::bad_alloc&) { // a line less
}

void server_notice::on_answer() noexcept
try {
    say(server_ + " answers now");
} catch (const std::bad_alloc&) {
}

void server_notice::on_put_off(const error& cause) noexcept
try {
    say(server_ + " puts off what it is asked (" + cause.message() + "), still trying");
} catch (const std::bad_alloc&) {
}

void server_notice::on_service() noexcept
try {
    say(server_ + " puts it off no longer");
} catch (const std::bad_alloc&) {
}

session::session(runtime& r, url where)
    : runtime_(r), url_(std::move(where)), version_(url_.version), identity_(nfs::identity::of_process())
{
    // Who has layouts can be called, to give them back.
    if (r.options().layouts != layout_use::no && version_ != nfs_version::v3)
        callbacks_.emplace(r.shard());
}

// A peer that goes on ending connections without a reply speaks something else, or wants nobody.
constexpr unsigned connections_without_reply = 3;

rpc::client_options session::client_options(std::string_view server)
{
    rpc::client_options o;
    o.hard = !runtime_.options().soft;
    o.timeout = std::chrono::seconds(runtime_.options().timeout_seconds);
    if (limit_.count() != 0) {
        o.hard = false;
        o.timeout = limit_;
        o.retries = 0;
    } else {
        notices_.push_back(std::make_unique<server_notice>(std::string(server), o.hard));
        o.watch = notices_.back().get();
    }
    o.connections_without_reply = connections_without_reply;
    o.connect_timeout = std::min<duration>(o.connect_timeout, o.timeout);
    return o;
}

// Hard or soft, putting off has an end: the server answers, so that its silence never ends the call.
duration session::jukebox_patience() const noexcept
{
    if (limit_.count() != 0)
        return limit_;
    const auto timeout = std::chrono::seconds(runtime_.options().timeout_seconds);
    return runtime_.options().soft ? std::min<duration>(nfs::client::jukebox_patience, timeout)
                                   : nfs::client::jukebox_patience;
}

task<result<std::unique_ptr<rpc::client_transport>>> session::connect_tcp(std::uint16_t port,
                                                                          std::string_view which)
{
    auto endpoints = net::resolve(url_.authority(port));
    if (!endpoints)
        co_return endpoints.error();
    rpc::stream_client_options options;
    options.client = client_options(url_.authority(port) + " (tcp" + std::string(which) + ')');
    options.reserved_port = ::geteuid() == 0;
    options.callbacks = callbacks_ ? &*callbacks_ : nullptr;
    error last(std::errc::address_not_available, "the name has no address");
    for (const net::endpoint& to : *endpoints) {
        auto made = rpc::make_stream_client(runtime_.shard(), runtime_.buffers(), to.to_string(), options);
        if (!made)
            co_return made.error();
        auto connected = co_await (*made)->connect();
        if (connected)
            co_return std::move(*made);
        last = connected.error();
        co_await (*made)->close();
    }
    co_return last;
}

task<result<std::unique_ptr<rpc::client_transport>>> session::connect_nfs(std::uint16_t port,
                                                                          std::string_view which)
{
    if (url_.transport == transport_kind::tcp)
        co_return co_await connect_tcp(port, which);
    auto endpoints = net::resolve(url_.authority(port));
    if (!endpoints)
        co_return endpoints.error();
    rpcrdma::requester_options options;
    options.client = client_options(url_.authority(port) + " (" + std::string(to_string(url_.transport)) +
                                    std::string(which) + ')');
    options.callbacks = callbacks_ ? &*callbacks_ : nullptr;
    verbs::context* provider = nullptr;
    if (url_.transport == transport_kind::rdma) {
        auto devices = runtime_.rdma();
        if (!devices)
            co_return devices.error();
        provider = *devices;
    } else {
        provider = &runtime_.iwarp();
    }
    error last(std::errc::address_not_available, "the name has no address");
    for (const net::endpoint& to : *endpoints) {
        auto made = rpcrdma::make_requester(*provider, runtime_.buffers(), to.to_string(), options);
        auto connected = co_await made->connect();
        if (connected)
            co_return std::move(made);
        last = connected.error();
        co_await made->close();
    }
    co_return last;
}

task<result<std::uint16_t>> session::ask_rpcbind(std::uint32_t program, std::uint32_t version)
{
    auto rpcbind = co_await connect_tcp(nfs::portmap::port);
    if (!rpcbind)
        co_return rpcbind.error();
    auto port = co_await nfs::get_port(**rpcbind, program, version);
    co_await (*rpcbind)->close();
    co_return port;
}

std::string session::cure_of(const error& e) const
{
    // The context tells how far it came.
    const std::string_view step = e.context();
    if (std::string_view(e.code().category().name()) == "resolver")
        return "check the spelling; `getent hosts " + url_.host +
               "` must find the name in /etc/hosts or DNS, or write the address";
    if (step.starts_with("the server rejected the connection: ")) // and says why, and what helps
        return {};
    if (step == "the peer rejected the connection")
        return "a service answers there and wants none of this: another one than NFS, or a full one";
    if (url_.transport == transport_kind::iwarp && step != "connect" &&
        (e == std::errc::connection_refused || e == std::errc::timed_out || e == std::errc::protocol_error ||
         e == std::errc::protocol_not_supported)) {
        url other = url_;
        other.transport = transport_kind::tcp;
        return "the port answers, but not as iWARP: give the port of an iWARP listener, or try " +
               other.to_string();
    }
    if (e == std::errc::connection_refused)
        return "nothing listens there: start the server, or give its port in the URL (host:PORT)";
    if (e == std::errc::timed_out)
        return "no answer: check the address and the firewall";
    return {};
}

task<failure> session::connect()
{
    auto made = co_await connect_nfs(url_.port);
    if (!made && url_.transport == transport_kind::tcp && !url_.port_given && !is_version_4(url_.version) &&
        made.error() == std::errc::connection_refused) {
        auto port = co_await ask_rpcbind(nfs::v3::program, url_.version == nfs_version::v3 ? 3 : 4);
        if (!port && url_.version == nfs_version::highest)
            port = co_await ask_rpcbind(nfs::v3::program, 3);
        if (port && *port != url_.port) {
            url_.port = *port;
            made = co_await connect_nfs(url_.port);
        }
    }
    if (!made) {
        std::string cure = cure_of(made.error());
        co_return failure("cannot connect to " + url_.authority(url_.port) + " (" +
                              std::string(to_string(url_.transport)) + ")",
                          made.error(), std::move(cure));
    }
    transport_ = std::move(*made);
    if (version_ == nfs_version::v3)
        speak3();
    else
        speak4();
    co_return failure();
}

void session::speak3()
{
    version_ = nfs_version::v3;
    nfs3_ = std::make_unique<nfs::client>(*transport_, identity_);
    // The last notice is of the NFS port: MOUNT's is asked later.
    nfs3_->have_patience(jukebox_patience(), notices_.empty() ? nullptr : notices_.back().get());
    if (runtime_.options().soft || limit_.count() != 0)
        nfs3_->spend_patience();
    remote_ = make_remote(*nfs3_);
}

void session::speak4()
{
    nfs::v4::minor_versions minors;
    if (version_ == nfs_version::v4_1)
        minors = {1, 1};
    if (version_ == nfs_version::v4_2)
        minors = {2, 2};
    nfs4_ = std::make_unique<nfs::v4::client>(*transport_, identity_, std::string(), minors,
                                              callbacks_ ? &*callbacks_ : nullptr);
    if (callbacks_) {
        nfs::v4::pnfs::layout_options o;
        o.requires_layouts = runtime_.options().layouts == layout_use::require;
        // The devices are there: the connection is by them.
        verbs::context* device = &runtime_.iwarp();
        if (url_.transport == transport_kind::rdma) {
            if (const auto found = runtime_.rdma())
                device = *found;
        }
        layouts_ = std::make_unique<nfs::v4::pnfs::layout_user>(*nfs4_, *device, runtime_.buffers(), o);
    }
    nfs4_->use_names(&runtime_.users());
    nfs::patience& patience = nfs4_->session().patience();
    patience.have(jukebox_patience(), notices_.empty() ? nullptr : notices_.back().get());
    if (runtime_.options().soft || limit_.count() != 0)
        patience.spend();
    remote_ = make_remote(*nfs4_, layouts_.get());
}

task<result<nfs::mount_client>> session::mounts()
{
    if (mount_transport_)
        co_return nfs::mount_client(*mount_transport_, identity_);
    std::uint16_t port = url_.mount_port;
    if (port == 0) {
        // Servers that answer both programs on one port need nothing else.
        nfs::mount_client here(*transport_, identity_);
        auto asked = co_await here.null();
        if (asked)
            co_return here;
        if (!unavailable(asked.error()))
            co_return asked.error();
        auto found = co_await ask_rpcbind(nfs::mount3::program, nfs::mount3::version);
        if (!found)
            co_return found.error();
        port = *found;
    }
    auto made = co_await connect_tcp(port);
    if (!made)
        co_return made.error();
    mount_transport_ = std::move(*made);
    co_return nfs::mount_client(*mount_transport_, identity_);
}

failure session::without_reply(const error& why) const
{
    url other = url_;
    other.transport = url_.transport == transport_kind::tcp ? transport_kind::iwarp : transport_kind::tcp;
    return failure(
        "no reply from " + url_.authority(url_.port) + " (" + std::string(to_string(url_.transport)) + ")",
        why,
        why == std::errc::timed_out
            ? "something takes the connection and does not answer in time: give the port of an NFS "
              "server, or look whether that one hangs"
        : why == std::errc::connection_refused
            ? "nothing listens there any more: is the server up?"
            : "the port answers, but not as NFS" +
                  (url_.version == nfs_version::highest
                       ? std::string()
                       : " version " + std::string(cli::to_string(url_.version))) +
                  ": give the port of an NFS server, or try " + other.to_string() +
                  "; or that server is full or ending: try again later");
}

failure session::without_mounts(const error& why) const
{
    if (!mount_transport_ && url_.mount_port == 0 && transport_ && !transport_->answered())
        return without_reply(why);
    return failure(
        "cannot reach the MOUNT service of " + url_.host, why,
        url_.mount_port != 0
            ? "what ?mountport=" + std::to_string(url_.mount_port) +
                  " names is no MOUNT service, is full or hangs: give MOUNT's port, or leave it out"
            : "it answers neither on the NFS port nor through rpcbind; give its port with "
              "?mountport=N");
}

task<failure> session::mount()
{
    failure failed = co_await connect();
    if (!failed.failed())
        failed = co_await mount_connected();
    co_return failed;
}

task<failure> session::mount_connected()
{
    failure failed;
    if (nfs4_)
        failed = co_await mount4();
    else
        failed = co_await mount3();
    if (!failed.failed() && layouts_ == nullptr && runtime_.options().layouts == layout_use::require)
        failed = failure("cannot use " + url_.to_string() + " with layouts",
                         error(std::errc::not_supported, "NFS version 3 has none"),
                         "have the server serve version 4.1 or 4.2 (verbenad: --versions 4.1)");
    co_return failed;
}

task<result<void>> session::settle()
{
    auto answered = co_await remote_->null();
    if (answered || version_ != nfs_version::highest || !unavailable(answered.error()))
        co_return answered;
    layouts_.reset();
    nfs4_.reset();
    speak3();
    co_return co_await remote_->null();
}

failure session::without_version(const error& why) const
{
    if (url_.version == nfs_version::highest)
        return failure("cannot use " + url_.to_string(), why,
                       "the server has neither version 4.2, 4.1 nor 3 of NFS: have it serve one of them");
    const std::string version(cli::to_string(url_.version));
    return failure("cannot use " + url_.to_string() + " in NFS version " + version, why,
                   "leave vers out of the URL for the highest version that the server has, " +
                       std::string(url_.version == nfs_version::v3 ? "" : "write ?vers=3, ") +
                       "or have it serve " + version + " too (verbenad: --versions " + version + ")");
}

// The server has no minor version that may be spoken.
task<failure> session::without4(const error& why)
{
    if (version_ != nfs_version::highest)
        co_return without_version(why);
    if (url_.connections != 1)
        co_return failure("cannot use " + url_.to_string(), why,
                          "nconnect is of version 4, and the server has 3 at most: leave it out");
    layouts_.reset();
    nfs4_.reset(); // it has no session
    speak3();
    auto answered = co_await remote_->null();
    if (!answered && unavailable(answered.error()))
        co_return without_version(why);
    co_return co_await mount3();
}

// As many as the URL says. Each tells of its own silence: a call goes by one of them, and waits for that.
task<failure> session::connect_more()
{
    while (nfs4_->session().connections() < url_.connections) {
        const std::string which = ", connection " + std::to_string(nfs4_->session().connections() + 1);
        auto made = co_await connect_nfs(url_.port, which);
        result<void> added;
        if (made) {
            more_.push_back(std::move(*made));
            added = co_await nfs4_->session().add_connection(*more_.back());
        } else {
            added = made.error();
        }
        if (!added)
            co_return failure("cannot make connection " + std::to_string(nfs4_->session().connections() + 1) +
                                  " of " + std::to_string(url_.connections) + " to " + url_.to_string(),
                              added.error(), "write a lower nconnect, or leave it out");
    }
    co_return failure();
}

namespace {

// The server doesn't want this caller. It may in another version.
bool is_refused(const error& e) noexcept
{
    return e == std::errc::permission_denied || e.code().category() == rpc::auth_category();
}

} // namespace

// There is nothing to mount: a path begins at the server's root.
task<failure> session::mount4()
{
    auto opened = co_await nfs4_->open_session();
    if (!opened && (unavailable(opened.error()) || opened.error() == std::errc::protocol_not_supported))
        co_return co_await without4(opened.error());
    const bool chosen = version_ != nfs_version::highest;
    if (opened)
        version_ = nfs4_->session().minor_version() == 1 ? nfs_version::v4_1 : nfs_version::v4_2;
    const std::string what = "cannot use " + url_.to_string() + " in NFS version " +
                             (version_ == nfs_version::highest ? "4" : std::string(cli::to_string(version_)));
    if (!opened && !transport_->answered())
        co_return without_reply(opened.error());
    const std::string elsewhere = chosen ? "" : "?vers=3 looks for an export of that name";
    if (!opened)
        co_return failure(
            what, opened.error(),
            opened.error() == std::errc::operation_not_permitted
                ? "the server has no export for this address or transport: see its exports' settings" +
                      (chosen ? "" : "; " + elsewhere)
            : is_refused(opened.error()) ? elsewhere
                                         : std::string());
    failure failed = co_await connect_more();
    if (failed.failed())
        co_return failed;
    auto top = co_await nfs4_->root();
    if (!top)
        co_return failure(what, top.error(), elsewhere);
    root_ = top->handle;
    rest_ = url_.path;
    // What is to be made is not there yet: the sizes are those of the file system that it will lie in.
    std::string_view path = rest_;
    while (path.ends_with('/'))
        path.remove_suffix(1);
    auto found = co_await nfs4_->walk(root_, path, true);
    while (!found && found.error() == std::errc::no_such_file_or_directory && !path.empty()) {
        const std::size_t slash = path.rfind('/');
        path = path.substr(0, slash == std::string_view::npos ? 0 : slash);
        found = co_await nfs4_->walk(root_, path, true);
    }
    outside_ = !chosen && found && path.empty() && rest_.find_first_not_of('/') != std::string::npos;
    // What else is wrong with the path is for the command to hear.
    if (found) {
        auto limits = co_await nfs4_->learn_limits(found->handle);
        if (!limits)
            co_return failure(what, limits.error());
    }
    co_return failure();
}

task<failure> session::mount3()
{
    auto mounts = co_await this->mounts();
    if (!mounts)
        co_return without_mounts(mounts.error());
    auto found = co_await mounts->mount_path(url_.path);
    if (!found && mount_transport_ && !mount_transport_->answered())
        co_return without_mounts(found.error());
    if (!found)
        co_return failure("cannot mount " + url_.to_string(), found.error(),
                          "`verbena mounts` with the same URL lists what the server exports and to whom");
    mounted_ = std::move(*found);
    root_ = to_handle(mounted_.root);
    rest_ = mounted_.rest;
    auto info = co_await nfs3_->fsinfo(mounted_.root);
    if (!info && !transport_->answered())
        co_return without_reply(info.error());
    if (!info)
        co_return failure(
            "cannot ask " + mounted_.directory + " for its limits", info.error(),
            info.error() == std::errc::permission_denied
                ? "the export may not admit this transport or address: `verbena mounts` lists to whom it is"
                : "");
    co_return failure();
}

// How long the server may take for what it need not answer.
constexpr std::chrono::seconds farewell{1};

static task<result<void>> leave(nfs::v4::client& c, nfs::v4::pnfs::layout_user* layouts)
{
    if (layouts != nullptr)
        co_await layouts->close();
    co_await c.close();
    co_return result<void>();
}

task<void> session::close()
{
    // Its list of who has mounted what must not name a program that has ended. Best effort, as the list is (RFC 1813 I.4).
    if (!mounted_.directory.empty()) {
        nfs::mount_client mounts(mount_transport_ ? *mount_transport_ : *transport_, identity_);
        const std::string left = std::exchange(mounted_.directory, {});
        task<result<void>> leaving = mounts.umnt(left);
        (void)co_await with_timeout(farewell, std::move(leaving));
    }
    if (nfs4_) {
        task<result<void>> leaving = leave(*nfs4_, layouts_.get());
        (void)co_await with_timeout(farewell, std::move(leaving));
    }
    if (mount_transport_)
        co_await mount_transport_->close();
    for (auto& each : more_)
        co_await each->close();
    if (transport_)
        co_await transport_->close();
}

task<result<node>> session::walk(std::string_view path, bool follow_last)
{
    auto found = co_await remote_->walk(root_, path, follow_last);
    if (!found && outside_ && found.error() == std::errc::no_such_file_or_directory)
        co_return error(found.error().code(),
                        "LOOKUP in the server's root, where paths of version 4 begin (?vers=3 "
                        "looks for an export of that name)");
    co_return found;
}

// Whether version 3 would find the path in an export other than the root. A server that does not say so in a moment has none of
// that version.
task<bool> session::is_in_another_export()
{
    const auto ask = [this]() -> task<result<std::vector<nfs::export_entry>>> {
        auto service = co_await mounts();
        if (!service)
            co_return service.error();
        co_return co_await service->exports();
    };
    const auto all = co_await with_timeout(std::chrono::seconds(5), ask());
    if (!all)
        co_return false;
    for (const nfs::export_entry& one : *all) {
        std::string_view directory = one.directory;
        while (directory.ends_with('/'))
            directory.remove_suffix(1);
        if (!directory.empty() && rest_.starts_with(directory) &&
            (rest_.size() == directory.size() || rest_[directory.size()] == '/'))
            co_return true;
    }
    co_return false;
}

task<result<void>> session::may_make_in(handle directory)
{
    if (!outside_ || directory != root_)
        co_return result<void>();
    const bool elsewhere = co_await is_in_another_export();
    if (!elsewhere)
        co_return result<void>();
    co_return error(
        std::errc::no_such_file_or_directory,
        version_ == nfs_version::v4_1
            ? "in the server's root, where paths of version 4 begin (version 3 has an export of that name: "
              "?vers=3 goes there, ?vers=4.1 makes it in the root)"
            : "in the server's root, where paths of version 4 begin (version 3 has an export of that name: "
              "?vers=3 goes there, ?vers=4.2 makes it in the root)");
}

} // namespace verbena::cli
