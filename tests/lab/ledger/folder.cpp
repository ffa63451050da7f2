// SPDX-License-Identifier: Apache-2.0
#include "folder.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string_view>

namespace verbena::ledger {
namespace {

namespace v3 = nfs::v3;
using v3::ftype3;

task<result<rpc::payload>> payload_of(nfs::client& c, std::string_view data)
{
    lease block = co_await c.transport().acquire(data.size());
    if (!block)
        co_return error(std::errc::not_enough_memory, "a buffer for a WRITE");
    std::memcpy(block.data(), data.data(), data.size());
    const std::span<const std::byte> bytes(block.data(), data.size());
    co_return rpc::payload(std::move(block), bytes);
}

v3::sattr3 mode_of(std::uint32_t mode)
{
    v3::sattr3 attributes;
    attributes.mode = mode;
    return attributes;
}

bool unsure_at(const object& o, std::uint64_t offset)
{
    return std::ranges::any_of(
        o.unsure, [offset](const auto& range) { return range.first <= offset && offset < range.second; });
}

bool may_be_zero(const object& o, std::uint64_t offset)
{
    return o.zeroed.first <= offset && offset < o.zeroed.second;
}

} // namespace

task<result<void>> folder::make(nfs::client& c, v3::nfs_fh3 parent)
{
    auto made = co_await c.mkdir(parent, name_, mode_of(0755));
    if (!made)
        co_return made.error();
    made_ = true;
    model_.at("").handle = made->handle;
    co_return result<void>();
}

task<void> folder::work(nfs::client& c, const bool& stop, counters& done)
{
    while (!stop) {
        const operation next = model_.choose(random_);
        pending_.assign(1, next);
        model_.begin(next);
        auto sent = co_await send(c, next);
        // What a second connection answers may be what the machine did after its restart.
        if (stop || c.transport().connections() > 1)
            co_return;
        if (!sent) {
            if (sent.error().code().category() == v3::status_category() ||
                (sent.error() == std::errc::protocol_error && failure_.empty()))
                failure_ = next.description() + ": " + sent.error().message();
            co_return;
        }
        pending_.clear();
        if (!next.pieces.empty())
            model_.at(next.path).unsure.clear();
        ++done[static_cast<std::size_t>(next.what)];
    }
}

task<result<void>> folder::send(nfs::client& c, const operation& o)
{
    const auto [parent, name] = split(o.path);
    const auto [to_parent, to_name] = split(o.to);
    const auto handle = [this](const std::string& path) { return *model_.at(path).handle; };
    v3::sattr3 attributes = mode_of(o.number);
    result<void> done;
    switch (o.what) {
    case kind::create: {
        auto made = co_await c.create(handle(parent), name, attributes, true);
        co_return co_await remember(o, std::move(made));
    }
    case kind::create_exclusive: {
        auto made = co_await c.create_exclusive(handle(parent), name, o.verifier);
        co_return co_await remember(o, std::move(made));
    }
    case kind::make_fifo: {
        auto made = co_await c.mknod(handle(parent), name, ftype3::fifo, attributes);
        co_return co_await remember(o, std::move(made));
    }
    case kind::make_device: {
        auto made = co_await c.mknod(handle(parent), name, ftype3::chr, attributes, o.device);
        co_return co_await remember(o, std::move(made));
    }
    case kind::mkdir: {
        auto made = co_await c.mkdir(handle(parent), name, attributes);
        co_return co_await remember(o, std::move(made));
    }
    case kind::symlink: {
        auto made = co_await c.symlink(handle(parent), name, o.target, v3::sattr3());
        co_return co_await remember(o, std::move(made));
    }
    case kind::link: done = co_await c.link(handle(o.path), handle(to_parent), to_name); break;
    case kind::rename:
    case kind::rename_over: done = co_await c.rename(handle(parent), name, handle(to_parent), to_name); break;
    case kind::remove: done = co_await c.remove(handle(parent), name); break;
    case kind::rmdir: done = co_await c.rmdir(handle(parent), name); break;
    case kind::chmod: done = co_await c.setattr(handle(o.path), attributes); break;
    case kind::chown:
        attributes.mode.reset();
        attributes.uid = o.number;
        attributes.gid = o.group;
        done = co_await c.setattr(handle(o.path), attributes);
        break;
    case kind::truncate:
        attributes.mode.reset();
        attributes.size = o.number;
        done = co_await c.setattr(handle(o.path), attributes);
        break;
    case kind::set_mtime:
    case kind::set_atime: {
        v3::set_time3& time = o.what == kind::set_mtime ? attributes.mtime : attributes.atime;
        attributes.mode.reset();
        time.how = v3::time_how::set_to_client_time;
        time.time.seconds = o.number;
        done = co_await c.setattr(handle(o.path), attributes);
        break;
    }
    case kind::write_file_sync:
    case kind::write_data_sync:
    case kind::write_and_commit: done = co_await send_writes(c, o); break;
    case kind::read: co_return co_await read(c, o);
    }
    if (done)
        model_.apply(o);
    co_return done;
}

task<result<void>> folder::remember(operation o, result<nfs::node> made)
{
    if (!made)
        co_return made.error();
    model_.apply(o);
    model_.at(o.path).handle = made->handle;
    co_return result<void>();
}

task<result<void>> folder::read(nfs::client& c, const operation& o)
{
    const object& file = model_.at(o.path);
    const std::uint64_t end = std::min<std::uint64_t>(o.offset + o.number, file.data.size());
    auto said = co_await compare_range(c, file, *file.handle, o.offset, end);
    if (!said)
        co_return said.error();
    if (said->empty() && end < o.offset + o.number) {
        auto beyond = co_await c.read(*file.handle, std::max(end, o.offset), 1);
        if (!beyond)
            co_return beyond.error();
        if (!beyond->data.empty() || !beyond->eof)
            *said = "no end at " + std::to_string(file.data.size());
    }
    if (said->empty())
        co_return result<void>();
    if (c.transport().connections() == 1)
        failure_ = o.description() + ": " + *said;
    co_return error(std::errc::protocol_error, "READ gave something else than was acknowledged");
}

task<result<void>> folder::send_writes(nfs::client& c, const operation& o)
{
    const v3::nfs_fh3 handle = *model_.at(o.path).handle;
    const v3::stable_how stable = o.what == kind::write_file_sync   ? v3::stable_how::file_sync
                                  : o.what == kind::write_data_sync ? v3::stable_how::data_sync
                                                                    : v3::stable_how::unstable;
    std::optional<v3::writeverf3> verifier;
    for (const piece& p : o.pieces) {
        const std::string_view all = p.data;
        for (std::size_t at = 0; at < all.size();) {
            const std::string_view part = all.substr(at, c.limits().write);
            auto data = co_await payload_of(c, part);
            if (!data)
                co_return data.error();
            auto written = co_await c.write(handle, p.offset + at, std::move(*data), stable);
            if (!written)
                co_return written.error();
            if (written->count != part.size() || written->committed < stable)
                co_return error(std::errc::protocol_error, "WRITE took less than it was asked");
            if (verifier && *verifier != written->verifier)
                co_return error(std::errc::protocol_error, "the write verifier changed without a restart");
            verifier = written->verifier;
            at += part.size();
        }
    }
    if (stable != v3::stable_how::unstable)
        co_return result<void>();
    auto committed = co_await c.commit(handle, 0, 0);
    if (!committed)
        co_return committed.error();
    if (*committed != *verifier)
        co_return error(std::errc::protocol_error, "COMMIT has another verifier than WRITE");
    co_return result<void>();
}

task<void> folder::check(nfs::client& c, v3::nfs_fh3 parent, std::vector<std::string>& differences)
{
    if (!made_)
        co_return;
    auto top = co_await c.lookup(parent, name_);
    if (!top) {
        differences.push_back(name_ + ": " + top.error().message());
        co_return;
    }
    std::vector<std::string> without;
    co_await compare(c, top->handle, model_, without);
    if (without.empty())
        co_return;
    if (!pending_.empty() && pending_.front().pieces.empty()) {
        model with(model_);
        with.apply(pending_.front());
        std::vector<std::string> still;
        co_await compare(c, top->handle, with, still);
        if (still.empty())
            co_return;
    }
    if (!pending_.empty())
        without.push_back("without an answer was " + pending_.front().description());
    for (const std::string& text : without)
        differences.push_back(name_ + '/' + text);
}

task<void> folder::compare(nfs::client& c, const v3::nfs_fh3& top, const model& wanted,
                           std::vector<std::string>& differences)
{
    std::map<std::string, v3::nfs_fh3> directories;
    directories.emplace("", top);
    // Parents stand before their children.
    for (const auto& [path, o] : wanted.names()) {
        const auto [parent, name] = split(path);
        if (!path.empty()) {
            if (!directories.contains(parent))
                continue; // told already
            auto there = co_await c.lookup(directories.at(parent), name);
            if (!there) {
                differences.push_back(path + ": " + there.error().message());
                continue;
            }
            co_await compare_object(c, directories.at(parent), path, *there, wanted, differences);
            if (there->attributes.type == ftype3::dir)
                directories.emplace(path, there->handle);
        }
        if (o->type != ftype3::dir || !directories.contains(path))
            continue;
        auto entries = co_await c.list(directories.at(path), false);
        if (!entries) {
            differences.push_back(path + ": " + entries.error().message());
            continue;
        }
        const std::vector<std::string> known = wanted.list(path);
        for (const nfs::directory_entry& e : *entries) {
            if (std::ranges::find(known, e.name) == known.end())
                differences.push_back(path + '/' + e.name + ": is there, and should not");
        }
    }
}

task<void> folder::compare_object(nfs::client& c, const v3::nfs_fh3& parent, const std::string& path,
                                  const nfs::node& there, const model& wanted,
                                  std::vector<std::string>& differences)
{
    const object& o = wanted.at(path);
    const v3::fattr3& has = there.attributes;
    const auto differs = [&](const char* what, std::uint64_t is, std::uint64_t should) {
        if (is != should)
            differences.push_back(path + ": " + what + ' ' + std::to_string(is) + ", not " +
                                  std::to_string(should));
    };
    differs("type", static_cast<std::uint64_t>(has.type), static_cast<std::uint64_t>(o.type));
    if (has.type != o.type)
        co_return;
    if (o.mode)
        differs("mode", has.mode & 07777, *o.mode);
    if (o.owner) {
        differs("owner", has.uid, o.owner->first);
        differs("group", has.gid, o.owner->second);
    }
    if (o.type == ftype3::chr) {
        differs("major number", has.rdev.specdata1, o.device.specdata1);
        differs("minor number", has.rdev.specdata2, o.device.specdata2);
    }
    if (o.type == ftype3::reg)
        differs("links", has.nlink, wanted.links_of(o));
    if (o.mtime)
        differs("mtime", has.mtime.seconds, *o.mtime);
    if (o.atime)
        differs("atime", has.atime.seconds, *o.atime);
    if (o.verifier) {
        auto again = co_await c.create_exclusive(parent, split(path).second, *o.verifier);
        if (!again)
            differences.push_back(path + ": the exclusive create once more: " + again.error().message());
        else if (again->handle != there.handle)
            differences.push_back(path + ": the exclusive create once more gives another file");
    }
    if (o.handle && *o.handle != there.handle)
        differences.push_back(path + ": its handle has changed");
    if (o.handle) {
        auto again = co_await c.getattr(*o.handle);
        if (!again)
            differences.push_back(path + ": by the handle from before: " + again.error().message());
    }
    std::string said;
    if (o.type == ftype3::lnk) {
        auto target = co_await c.readlink(there.handle);
        said = !target ? target.error().message() : *target != o.data ? "leads elsewhere" : "";
    } else if (o.type == ftype3::reg) {
        said = co_await compare_data(c, o, there);
    }
    if (!said.empty())
        differences.push_back(path + ": " + said);
}

task<std::string> folder::compare_data(nfs::client& c, const object& wanted, const nfs::node& there)
{
    const std::uint64_t size = there.attributes.size;
    std::uint64_t most = wanted.data.size();
    for (const auto& range : wanted.unsure)
        most = std::max(most, range.second);
    if (size < wanted.data.size() || size > most)
        co_return "size " + std::to_string(size) + ", not " + std::to_string(wanted.data.size());
    auto said = co_await compare_range(c, wanted, there.handle, 0, size);
    co_return said ? std::move(*said) : said.error().message();
}

task<result<std::string>> folder::compare_range(nfs::client& c, const object& wanted,
                                                const v3::nfs_fh3& handle, std::uint64_t at,
                                                std::uint64_t end)
{
    while (at < end) {
        auto read = co_await c.read(
            handle, at, static_cast<std::uint32_t>(std::min<std::uint64_t>(end - at, c.max_transfer)));
        if (!read)
            co_return read.error();
        if (read->data.empty())
            co_return "ends at " + std::to_string(at);
        for (const std::span<const std::byte> bytes : read->data.pieces()) {
            const std::size_t known =
                at < wanted.data.size() ? std::min<std::size_t>(bytes.size(), wanted.data.size() - at) : 0;
            const char* const should = wanted.data.data() + (known != 0 ? at : 0);
            if (std::memcmp(bytes.data(), should, known) != 0) {
                for (std::size_t i = 0; i < known; ++i) {
                    if (bytes[i] != static_cast<std::byte>(should[i]) && !unsure_at(wanted, at + i) &&
                        (bytes[i] != std::byte(0) || !may_be_zero(wanted, at + i)))
                        co_return "other data at " + std::to_string(at + i);
                }
            }
            at += bytes.size();
        }
    }
    co_return std::string();
}

} // namespace verbena::ledger
