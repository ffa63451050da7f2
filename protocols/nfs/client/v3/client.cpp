// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/client/v3/client.hpp>

#include "../whole_directory.hpp"

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/nfs/wire/v3/binding.hpp>
#include <verbena/protocols/nfs/wire/v3/codec.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

namespace verbena::nfs {
namespace {

/// Any call's header and arguments without the payload: a credential of 400 bytes, two handles, two names.
constexpr std::size_t message_size = 4096;
static_assert(rpc::max_call_header_size + 2 * v3::wire_size::max_handle +
                  2 * xdr::opaque_size(client::max_name) + 128 <=
              message_size);

bool name_fits(std::string_view name) noexcept { return name.size() <= client::max_name; }

static_assert(client::max_name == 1024);
const error name_too_long(std::errc::filename_too_long, "a name of more than 1024 octets");

// The bytes of a small result, wherever they lie.
std::string text_of(const rpc::payload& data)
{
    std::string text;
    for (auto piece : data.pieces())
        text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return text;
}

} // namespace

bool is_name(std::string_view name) noexcept
{
    return !name.empty() && name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

// A decoded result with the reply that its views point into.
template<class Res>
class client::answer {
public:
    answer(rpc::reply r, const Res& decoded) : reply(std::move(r)), res(decoded) {}
    rpc::reply reply;
    Res res;
};

template<class Args>
task<result<rpc::reply>> client::send(v3::procedure procedure, const Args& args, const rpc::payload* data)
{
    rpc::call_header header;
    header.program = v3::program;
    header.version = v3::version;
    header.procedure = static_cast<std::uint32_t>(procedure);
    header.credential = who_.credential();
    lease block = co_await transport_.acquire(message_size);
    if (!block)
        co_return error(std::errc::not_enough_memory, v3::to_string(procedure));
    rpc::request request(std::move(block), header);
    encode(request.message(), args);
    if (data != nullptr)
        request.attach(share(*data));
    const v3::reply_bound bound = max_reply_size(args);
    request.max_reply = rpc::max_success_header_size + bound.head;
    request.max_result = static_cast<std::uint32_t>(bound.payload);
    co_return co_await transport_.call(request);
}

template<class Res, class Args>
task<result<client::answer<Res>>> client::ask(v3::procedure procedure, const Args& args,
                                              const rpc::payload* data)
{
    duration delay = patience::first_delay;
    duration waited = duration::zero();
    for (;;) {
        result<rpc::reply> reply = co_await send(procedure, args, data);
        if (!reply)
            co_return reply.error();
        Res res;
        decode(reply->results(), res);
        if (!reply->results().ok())
            co_return reply->results().failure();
        if (res.status != v3::nfsstat3::jukebox)
            patience_.served();
        if (res.status == v3::nfsstat3::ok)
            co_return answer<Res>(std::move(*reply), res);
        const error failed(make_error_code(res.status), v3::to_string(procedure));
        if (res.status != v3::nfsstat3::jukebox)
            co_return failed;
        if (!patience_.put_off(failed, waited, patience_.limit()))
            co_return failed;
        delay = std::min(delay, patience_.limit() - waited);
        if (!co_await sleep_for(delay))
            co_return failed;
        waited += delay;
        delay = std::min(delay * 2, patience::max_delay);
    }
}

task<result<void>> client::null()
{
    rpc::call_header header;
    header.program = v3::program;
    header.version = v3::version;
    lease block = co_await transport_.acquire(message_size);
    if (!block)
        co_return error(std::errc::not_enough_memory, "NULL");
    rpc::request request(std::move(block), header);
    request.max_reply = rpc::max_success_header_size;
    result<rpc::reply> reply = co_await transport_.call(request);
    if (!reply)
        co_return reply.error();
    co_return result<void>();
}

task<result<v3::fattr3>> client::getattr(const v3::nfs_fh3& object)
{
    const v3::GETATTR3args args{object};
    auto a = co_await ask<v3::GETATTR3res>(v3::procedure::getattr, args);
    if (!a)
        co_return a.error();
    co_return a->res.obj_attributes;
}

task<result<void>> client::setattr(const v3::nfs_fh3& object, const v3::sattr3& attributes,
                                   std::optional<v3::nfstime3> guard)
{
    const v3::SETATTR3args args{object, attributes, guard};
    auto a = co_await ask<v3::SETATTR3res>(v3::procedure::setattr, args);
    if (!a)
        co_return a.error();
    co_return result<void>();
}

// Servers may leave out handles and attributes (RFC 1813 2.6); the caller is to have them anyway.
task<result<node>> client::complete_node(v3::nfs_fh3 directory, std::string_view name, v3::post_op_fh3 handle,
                                         v3::post_op_attr attributes)
{
    if (!handle)
        co_return co_await lookup(directory, name);
    node found;
    found.handle = *handle;
    if (attributes) {
        found.attributes = *attributes;
        co_return found;
    }
    auto fetched = co_await getattr(found.handle);
    if (!fetched)
        co_return fetched.error();
    found.attributes = *fetched;
    co_return found;
}

task<result<node>> client::lookup(const v3::nfs_fh3& directory, std::string_view name)
{
    if (!name_fits(name))
        co_return name_too_long;
    const v3::LOOKUP3args args{{directory, name}};
    auto a = co_await ask<v3::LOOKUP3res>(v3::procedure::lookup, args);
    if (!a)
        co_return a.error();
    co_return co_await complete_node(directory, name, a->res.object, a->res.obj_attributes);
}

task<result<node>> client::walk(const v3::nfs_fh3& start, std::string_view path, bool follow_last)
{
    std::string rest(path);
    v3::nfs_fh3 directory = start;
    std::optional<node> here;
    unsigned links = 0;
    for (;;) {
        const std::size_t begin = rest.find_first_not_of('/');
        if (begin == std::string::npos)
            break;
        const std::size_t end = rest.find('/', begin);
        const std::string name = rest.substr(begin, end == std::string::npos ? end : end - begin);
        rest.erase(0, end == std::string::npos ? rest.size() : end);
        if (name == ".")
            continue;
        auto next = co_await lookup(directory, name);
        if (!next)
            co_return next.error();
        const bool last = rest.find_first_not_of('/') == std::string::npos;
        if (next->attributes.type == v3::ftype3::lnk && (!last || follow_last)) {
            auto target = co_await readlink(next->handle);
            if (!target)
                co_return target.error();
            if (++links > max_links)
                co_return error(std::errc::too_many_symbolic_link_levels, "walk", links);
            if (target->starts_with('/'))
                co_return error(std::errc::too_many_symbolic_link_levels,
                                "an absolute symbolic link leads out of the export");
            rest = *target + "/" + rest;
            continue;
        }
        here = *next;
        directory = next->handle;
    }
    if (here)
        co_return *here;
    node root;
    root.handle = start;
    auto attributes = co_await getattr(start);
    if (!attributes)
        co_return attributes.error();
    root.attributes = *attributes;
    co_return root;
}

task<result<std::uint32_t>> client::access(const v3::nfs_fh3& object, std::uint32_t wanted)
{
    const v3::ACCESS3args args{object, wanted};
    auto a = co_await ask<v3::ACCESS3res>(v3::procedure::access, args);
    if (!a)
        co_return a.error();
    co_return a->res.access;
}

task<result<std::string>> client::readlink(const v3::nfs_fh3& link)
{
    const v3::READLINK3args args{link};
    auto a = co_await ask<v3::READLINK3res>(v3::procedure::readlink, args);
    if (!a)
        co_return a.error();
    auto data = a->reply.take(a->res.data);
    if (!data)
        co_return data.error();
    co_return text_of(*data);
}

task<result<read_result>> client::read(const v3::nfs_fh3& file, std::uint64_t offset, std::uint32_t count)
{
    const v3::READ3args args{file, offset, std::min(count, limits_.read)};
    auto a = co_await ask<v3::READ3res>(v3::procedure::read, args);
    if (!a)
        co_return a.error();
    if (a->res.count > args.count)
        co_return error(std::errc::protocol_error, "READ returned more than was asked", a->res.count);
    auto data = a->reply.take(a->res.data);
    if (!data)
        co_return data.error();
    read_result out;
    out.data = std::move(*data);
    out.eof = a->res.eof;
    out.attributes = a->res.file_attributes;
    co_return std::move(out);
}

task<result<write_result>> client::write(const v3::nfs_fh3& file, std::uint64_t offset, rpc::payload data,
                                         v3::stable_how stable)
{
    if (data.size() > max_transfer)
        co_return error(std::errc::message_size, "WRITE longer than nfs::client::max_transfer", data.size());
    v3::WRITE3args args;
    args.file = file;
    args.offset = offset;
    args.count = static_cast<std::uint32_t>(data.size());
    args.stable = stable;
    args.data.external = true;
    args.data.length = args.count;
    auto a = co_await ask<v3::WRITE3res>(v3::procedure::write, args, &data);
    if (!a)
        co_return a.error();
    if (a->res.count > args.count || (a->res.count == 0 && args.count != 0))
        co_return error(std::errc::protocol_error, "WRITE tells an impossible count", a->res.count);
    write_result out;
    out.count = a->res.count;
    out.committed = a->res.committed;
    out.verifier = a->res.verf;
    co_return out;
}

task<result<v3::writeverf3>> client::commit(const v3::nfs_fh3& file, std::uint64_t offset,
                                            std::uint32_t count)
{
    const v3::COMMIT3args args{file, offset, count};
    auto a = co_await ask<v3::COMMIT3res>(v3::procedure::commit, args);
    if (!a)
        co_return a.error();
    co_return a->res.verf;
}

task<result<node>> client::create(const v3::nfs_fh3& directory, std::string_view name,
                                  const v3::sattr3& attributes, bool exclusive)
{
    if (!name_fits(name))
        co_return name_too_long;
    v3::CREATE3args args;
    args.where = {directory, name};
    args.mode = exclusive ? v3::createmode3::guarded : v3::createmode3::unchecked;
    args.obj_attributes = attributes;
    auto a = co_await ask<v3::CREATE3res>(v3::procedure::create, args);
    if (!a)
        co_return a.error();
    co_return co_await complete_node(directory, name, a->res.obj, a->res.obj_attributes);
}

task<result<node>> client::create_exclusive(const v3::nfs_fh3& directory, std::string_view name,
                                            const v3::createverf3& verifier)
{
    if (!name_fits(name))
        co_return name_too_long;
    v3::CREATE3args args;
    args.where = {directory, name};
    args.mode = v3::createmode3::exclusive;
    args.verf = verifier;
    auto a = co_await ask<v3::CREATE3res>(v3::procedure::create, args);
    if (!a)
        co_return a.error();
    co_return co_await complete_node(directory, name, a->res.obj, a->res.obj_attributes);
}

task<result<node>> client::mkdir(const v3::nfs_fh3& directory, std::string_view name,
                                 const v3::sattr3& attributes)
{
    if (!name_fits(name))
        co_return name_too_long;
    const v3::MKDIR3args args{{directory, name}, attributes};
    auto a = co_await ask<v3::MKDIR3res>(v3::procedure::mkdir, args);
    if (!a)
        co_return a.error();
    co_return co_await complete_node(directory, name, a->res.obj, a->res.obj_attributes);
}

task<result<node>> client::symlink(const v3::nfs_fh3& directory, std::string_view name,
                                   std::string_view target, const v3::sattr3& attributes)
{
    if (!name_fits(name) || target.size() > v3::max_expected_path)
        co_return name_too_long;
    lease block = co_await transport_.acquire(v3::max_expected_path);
    if (!block)
        co_return error(std::errc::not_enough_memory, "SYMLINK");
    std::memcpy(block.data(), target.data(), target.size());
    const std::span<const std::byte> bytes(block.data(), target.size());
    const rpc::payload data(std::move(block), bytes);
    v3::SYMLINK3args args;
    args.where = {directory, name};
    args.symlink_attributes = attributes;
    args.symlink_data.external = true;
    args.symlink_data.length = static_cast<std::uint32_t>(target.size());
    auto a = co_await ask<v3::SYMLINK3res>(v3::procedure::symlink, args, &data);
    if (!a)
        co_return a.error();
    co_return co_await complete_node(directory, name, a->res.obj, a->res.obj_attributes);
}

task<result<node>> client::mknod(const v3::nfs_fh3& directory, std::string_view name, v3::ftype3 type,
                                 const v3::sattr3& attributes, v3::specdata3 device)
{
    if (!name_fits(name))
        co_return name_too_long;
    const v3::MKNOD3args args{{directory, name}, type, attributes, device};
    auto a = co_await ask<v3::MKNOD3res>(v3::procedure::mknod, args);
    if (!a)
        co_return a.error();
    co_return co_await complete_node(directory, name, a->res.obj, a->res.obj_attributes);
}

task<result<void>> client::remove(const v3::nfs_fh3& directory, std::string_view name)
{
    if (!name_fits(name))
        co_return name_too_long;
    const v3::REMOVE3args args{{directory, name}};
    auto a = co_await ask<v3::REMOVE3res>(v3::procedure::remove, args);
    if (!a)
        co_return a.error();
    co_return result<void>();
}

task<result<void>> client::rmdir(const v3::nfs_fh3& directory, std::string_view name)
{
    if (!name_fits(name))
        co_return name_too_long;
    const v3::RMDIR3args args{{directory, name}};
    auto a = co_await ask<v3::RMDIR3res>(v3::procedure::rmdir, args);
    if (!a)
        co_return a.error();
    co_return result<void>();
}

task<result<void>> client::rename(const v3::nfs_fh3& from_directory, std::string_view from,
                                  const v3::nfs_fh3& to_directory, std::string_view to)
{
    if (!name_fits(from) || !name_fits(to))
        co_return name_too_long;
    const v3::RENAME3args args{{from_directory, from}, {to_directory, to}};
    auto a = co_await ask<v3::RENAME3res>(v3::procedure::rename, args);
    if (!a)
        co_return a.error();
    co_return result<void>();
}

task<result<void>> client::link(const v3::nfs_fh3& file, const v3::nfs_fh3& directory, std::string_view name)
{
    if (!name_fits(name))
        co_return name_too_long;
    const v3::LINK3args args{file, {directory, name}};
    auto a = co_await ask<v3::LINK3res>(v3::procedure::link, args);
    if (!a)
        co_return a.error();
    co_return result<void>();
}

template<class Args, class Reader, class Entry>
task<result<directory_page>> client::read_page(v3::procedure procedure, const Args& args)
{
    auto a = co_await ask<v3::directory_head>(procedure, args);
    if (!a)
        co_return a.error();
    directory_page page;
    page.verifier = a->res.cookieverf;
    page.cookie = args.cookie;
    Reader reader(a->reply.results());
    for (Entry entry; reader.next(entry);) {
        directory_entry& added = page.entries.emplace_back();
        added.fileid = entry.fileid;
        added.name = entry.name;
        page.cookie = entry.cookie;
        if constexpr (requires { entry.name_handle; }) {
            added.handle = entry.name_handle;
            added.attributes = entry.name_attributes;
        }
    }
    if (!a->reply.results().ok())
        co_return a->reply.results().failure();
    page.eof = reader.eof();
    if (!page.eof && page.entries.empty())
        co_return error(std::errc::protocol_error, "a page of a directory holds nothing and is not the last");
    co_return std::move(page);
}

task<result<directory_page>> client::readdir(const v3::nfs_fh3& directory, const directory_page& before,
                                             bool plus)
{
    if (plus && has_readdirplus_) {
        v3::READDIRPLUS3args args;
        args.dir = directory;
        args.cookie = before.cookie;
        args.cookieverf = before.verifier;
        args.dircount = args.maxcount = limits_.directory;
        auto page = co_await read_page<v3::READDIRPLUS3args, v3::readdirplus_reader, v3::entryplus3>(
            v3::procedure::readdirplus, args);
        if (page || page.error().code() != make_error_code(v3::nfsstat3::notsupp))
            co_return std::move(page);
        has_readdirplus_ = false;
    }
    v3::READDIR3args args;
    args.dir = directory;
    args.cookie = before.cookie;
    args.cookieverf = before.verifier;
    args.count = limits_.directory;
    co_return co_await read_page<v3::READDIR3args, v3::readdir_reader, v3::entry3>(v3::procedure::readdir,
                                                                                   args);
}

task<result<std::vector<directory_entry>>> client::list(const v3::nfs_fh3& directory, bool plus,
                                                        std::size_t most)
{
    return whole_directory<directory_page>(*this, directory, plus, most, true);
}

task<result<v3::FSSTAT3res>> client::fsstat(const v3::nfs_fh3& root)
{
    const v3::FSSTAT3args args{root};
    auto a = co_await ask<v3::FSSTAT3res>(v3::procedure::fsstat, args);
    if (!a)
        co_return a.error();
    co_return a->res;
}

task<result<v3::FSINFO3res>> client::fsinfo(const v3::nfs_fh3& root)
{
    const v3::FSINFO3args args{root};
    auto a = co_await ask<v3::FSINFO3res>(v3::procedure::fsinfo, args);
    if (!a)
        co_return a.error();
    const v3::FSINFO3res& info = a->res;
    if (info.rtmax == 0 || info.wtmax == 0)
        co_return error(std::errc::protocol_error, "FSINFO says that nothing can be read or written");
    limits_.read = std::min(info.rtmax, max_transfer);
    limits_.write = std::min(info.wtmax, max_transfer);
    limits_.directory = std::clamp<std::uint32_t>(info.dtpref, 32 * 1024, max_page);
    co_return info;
}

} // namespace verbena::nfs
