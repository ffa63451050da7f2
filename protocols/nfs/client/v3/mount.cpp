// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/client/v3/mount.hpp>

#include <verbena/protocols/nfs/wire/portmap.hpp>
#include <verbena/protocols/nfs/wire/v3/mount.hpp>
#include <verbena/protocols/rpc/message.hpp>

#include <algorithm>

namespace verbena::nfs {
namespace {

constexpr std::size_t mount_message_size = 4096;
static_assert(rpc::max_call_header_size + xdr::opaque_size(mount3::max_path) <= mount_message_size);
/// An EXPORT or DUMP answer, which has no bound of its own.
constexpr std::size_t max_list_reply = 64 * 1024;

const error no_buffer(std::errc::not_enough_memory, "mount");

std::errc errc_of(mount3::mountstat3 status) noexcept
{
    switch (status) {
    case mount3::mountstat3::ok: break;
    case mount3::mountstat3::perm: return std::errc::operation_not_permitted;
    case mount3::mountstat3::noent: return std::errc::no_such_file_or_directory;
    case mount3::mountstat3::io: return std::errc::io_error;
    case mount3::mountstat3::acces: return std::errc::permission_denied;
    case mount3::mountstat3::notdir: return std::errc::not_a_directory;
    case mount3::mountstat3::inval: return std::errc::invalid_argument;
    case mount3::mountstat3::nametoolong: return std::errc::filename_too_long;
    case mount3::mountstat3::notsupp: return std::errc::not_supported;
    case mount3::mountstat3::serverfault: return std::errc::io_error;
    }
    return std::errc::protocol_error;
}

std::string without_trailing_slashes(std::string_view path)
{
    while (path.size() > 1 && path.ends_with('/'))
        path.remove_suffix(1);
    return std::string(path);
}

// True if `path` is `directory` or lies below it.
bool lies_in(std::string_view path, std::string_view directory) noexcept
{
    if (directory == "/")
        return path.starts_with('/');
    return path.starts_with(directory) && (path.size() == directory.size() || path[directory.size()] == '/');
}

} // namespace

task<result<rpc::reply>> mount_client::call(std::uint32_t procedure, std::string_view directory,
                                            std::size_t max_reply)
{
    rpc::call_header header;
    header.program = mount3::program;
    header.version = mount3::version;
    header.procedure = procedure;
    header.credential = who_.credential();
    lease block = co_await transport_.acquire(mount_message_size);
    if (!block)
        co_return no_buffer;
    rpc::request request(std::move(block), header);
    if (!directory.empty())
        encode(request.message(), mount3::dirpath{directory});
    request.max_reply = rpc::max_success_header_size + max_reply;
    request.may_repeat = max_reply == max_list_reply;
    co_return co_await transport_.call(request);
}

task<result<void>> mount_client::null()
{
    auto reply = co_await call(std::uint32_t(mount3::procedure::null), {}, 0);
    if (!reply)
        co_return reply.error();
    co_return result<void>();
}

task<result<std::vector<export_entry>>> mount_client::exports()
{
    auto reply = co_await call(std::uint32_t(mount3::procedure::exports), {}, max_list_reply);
    if (!reply)
        co_return reply.error();
    std::vector<export_entry> all;
    mount3::export_reader reader(reply->results());
    std::string_view text;
    is_cut_ = false;
    while (reader.next(text)) {
        is_cut_ = all.size() == max_list;
        if (is_cut_)
            break;
        export_entry& entry = all.emplace_back();
        entry.directory = text;
        while (reader.next_group(text))
            entry.groups.emplace_back(text);
    }
    if (!reply->results().ok())
        co_return reply->results().failure();
    co_return std::move(all);
}

task<result<std::vector<mount_entry>>> mount_client::dump()
{
    auto reply = co_await call(std::uint32_t(mount3::procedure::dump), {}, max_list_reply);
    if (!reply)
        co_return reply.error();
    std::vector<mount_entry> all;
    mount3::mount_entry entry;
    is_cut_ = false;
    while (mount3::next(reply->results(), entry)) {
        is_cut_ = all.size() == max_list;
        if (is_cut_)
            break;
        mount_entry& added = all.emplace_back();
        added.host = entry.hostname;
        added.directory = entry.directory;
    }
    if (!reply->results().ok())
        co_return reply->results().failure();
    co_return std::move(all);
}

task<result<v3::nfs_fh3>> mount_client::mnt(std::string_view directory)
{
    if (directory.empty() || directory.size() > mount3::max_path)
        co_return error(std::errc::filename_too_long, "MNT", directory.size());
    auto reply = co_await call(std::uint32_t(mount3::procedure::mnt), directory, mount3::max_mnt_reply_size);
    if (!reply)
        co_return reply.error();
    mount3::mountres3 res;
    decode(reply->results(), res);
    if (!reply->results().ok())
        co_return reply->results().failure();
    if (res.status != mount3::mountstat3::ok)
        co_return error(errc_of(res.status), mount3::to_string(res.status));
    co_return res.fhandle;
}

task<result<void>> mount_client::umnt(std::string_view directory)
{
    auto reply = co_await call(std::uint32_t(mount3::procedure::umnt), directory, 0);
    if (!reply)
        co_return reply.error();
    co_return result<void>();
}

task<result<mounted>> mount_client::mount_path(std::string_view path)
{
    const std::string wanted = without_trailing_slashes(path.empty() ? "/" : path);
    std::string best;
    // A server may keep its list to itself; then ancestors are tried.
    if (auto list = co_await exports()) {
        for (const export_entry& entry : *list) {
            const std::string directory = without_trailing_slashes(entry.directory);
            if (lies_in(wanted, directory) && directory.size() > best.size())
                best = directory;
        }
    } else if (list.error().code().category() != rpc::accept_category()) {
        co_return list.error();
    }
    error first(std::errc::no_such_file_or_directory, "no export holds the path");
    for (std::string directory = best.empty() ? wanted : best;;) {
        auto root = co_await mnt(directory);
        if (root) {
            mounted out;
            out.directory = directory;
            out.rest = wanted.substr(directory == "/" ? 0 : directory.size());
            out.root = *root;
            co_return std::move(out);
        }
        if (directory == wanted || directory == best)
            first = root.error();
        const bool elsewhere = root.error() == std::errc::no_such_file_or_directory ||
                               root.error() == std::errc::not_a_directory ||
                               root.error() == std::errc::permission_denied;
        if (!best.empty() || !elsewhere || directory == "/")
            co_return first;
        const std::size_t slash = directory.rfind('/');
        directory = slash == std::string::npos || slash == 0 ? "/" : directory.substr(0, slash);
    }
}

task<result<std::uint16_t>> get_port(rpc::client_transport& transport, std::uint32_t program,
                                     std::uint32_t version)
{
    rpc::call_header header;
    header.program = portmap::program;
    header.version = portmap::version_2;
    header.procedure = std::uint32_t(portmap::procedure_2::getport);
    lease block = co_await transport.acquire(mount_message_size);
    if (!block)
        co_return no_buffer;
    rpc::request request(std::move(block), header);
    encode(request.message(), portmap::mapping{program, version, portmap::protocol_tcp, 0});
    auto reply = co_await transport.call(request);
    if (!reply)
        co_return reply.error();
    const std::uint32_t port = reply->results().u32();
    if (!reply->results().ok())
        co_return reply->results().failure();
    if (port == 0)
        co_return error(std::errc::no_such_file_or_directory, "the port mapper knows no such program",
                        program);
    if (port > UINT16_MAX)
        co_return error(std::errc::protocol_error, "the port mapper returned no port", port);
    co_return static_cast<std::uint16_t>(port);
}

} // namespace verbena::nfs
