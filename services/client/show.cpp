// SPDX-License-Identifier: Apache-2.0
// What only looks: ls, stat, cat, df, mounts.
#include "commands.hpp"
#include "listing.hpp"
#include "session.hpp"

#include "../standard_output.hpp"

#include <verbena/protocols/nfs/file.hpp>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace verbena::cli {
namespace {

using nlohmann::json;

json attributes_json(const nfs::v3::fattr3& a)
{
    // Not one number: most readers of JSON would make it a double, which holds no nanoseconds.
    const auto time = [](const nfs::v3::nfstime3& t) {
        return json{{"seconds", t.seconds}, {"nanoseconds", t.nseconds}};
    };
    return {{"type", type_text(a.type)},
            {"mode", a.mode},
            {"nlink", a.nlink},
            {"uid", a.uid},
            {"gid", a.gid},
            {"size", a.size},
            {"used", a.used},
            {"fsid", a.fsid},
            {"fileid", a.fileid},
            {"atime", time(a.atime)},
            {"mtime", time(a.mtime)},
            {"ctime", time(a.ctime)}};
}

// Invalid UTF-8 in names must not end the program.
std::string dump(const json& value) { return value.dump(2, ' ', false, json::error_handler_t::replace); }

void print_line(const std::string& name, const nfs::v3::fattr3& a, const std::string& target)
{
    print("%s %3u %5u %5u %12llu %s %s%s%s\n", mode_text(a).c_str(), a.nlink, a.uid, a.gid,
          static_cast<unsigned long long>(a.size), time_text(a.mtime).c_str(), printable(name).c_str(),
          target.empty() ? "" : " -> ", printable(target).c_str());
}

task<result<void>> print_entry(session& s, const ls_options& o, const nfs::v3::nfs_fh3& directory,
                               const nfs::directory_entry& entry, json* out)
{
    if (!o.long_format && out == nullptr) {
        print("%s\n", printable(entry.name).c_str());
        co_return result<void>();
    }
    nfs::node n;
    if (entry.attributes && entry.handle) {
        n.handle = *entry.handle;
        n.attributes = *entry.attributes;
    } else {
        auto found = co_await s.nfs().lookup(directory, entry.name);
        if (!found)
            co_return found.error();
        n = *found;
    }
    std::string target;
    if (n.attributes.type == nfs::v3::ftype3::lnk) {
        if (auto text = co_await s.nfs().readlink(n.handle))
            target = *text;
    }
    if (out == nullptr) {
        print_line(entry.name, n.attributes, target);
    } else {
        json item = attributes_json(n.attributes);
        item["name"] = entry.name;
        if (!target.empty())
            item["target"] = target;
        out->push_back(std::move(item));
    }
    co_return result<void>();
}

task<result<void>> list_tree(session& s, const ls_options& o, std::string path, const nfs::node& top,
                             json* out)
{
    std::deque<std::pair<std::string, nfs::v3::nfs_fh3>> pending;
    pending.emplace_back(path, top.handle);
    bool first = true;
    while (!pending.empty()) {
        const auto [name, handle] = std::move(pending.front());
        pending.pop_front();
        auto entries = co_await s.nfs().list(handle, o.long_format || o.recursive || out != nullptr);
        if (!entries)
            co_return entries.error();
        std::ranges::sort(*entries, {}, &nfs::directory_entry::name);
        if (o.recursive && out == nullptr)
            print("%s%s:\n", first ? "" : "\n", name.empty() ? "/" : printable(name).c_str());
        first = false;
        for (const nfs::directory_entry& entry : *entries) {
            if (!o.all && entry.name.starts_with('.'))
                continue;
            const nfs::directory_entry* shown = &entry;
            nfs::directory_entry named;
            if (out != nullptr && o.recursive) {
                named = entry;
                named.name = name + "/" + entry.name;
                shown = &named;
            }
            auto printed = co_await print_entry(s, o, handle, *shown, out);
            if (!printed)
                co_return printed.error();
            if (!o.recursive)
                continue;
            nfs::v3::nfs_fh3 below;
            if (entry.handle && entry.attributes) {
                if (entry.attributes->type != nfs::v3::ftype3::dir)
                    continue;
                below = *entry.handle;
            } else {
                auto found = co_await s.nfs().lookup(handle, entry.name);
                if (!found)
                    co_return found.error();
                if (found->attributes.type != nfs::v3::ftype3::dir)
                    continue;
                below = found->handle;
            }
            pending.emplace_back(name + "/" + entry.name, below);
        }
    }
    co_return result<void>();
}

task<int> ls_one(runtime& r, const ls_options& o, const std::string& text, json* out)
{
    auto where = url_argument(text);
    if (!where)
        co_return exit_usage;
    session s(r, *where);
    const failure failed = co_await s.mount();
    int code = exit_ok;
    if (failed.failed()) {
        code = complain(failed.text(), exit_unreachable);
    } else {
        auto found = co_await s.walk(s.mounted().rest, !o.directory && !o.long_format);
        result<void> listed;
        if (!found) {
            listed = found.error();
        } else if (found->attributes.type == nfs::v3::ftype3::dir && !o.directory) {
            std::string top = s.where().path;
            while (top.ends_with('/'))
                top.pop_back();
            listed = co_await list_tree(s, o, std::move(top), *found, out);
        } else {
            nfs::directory_entry entry;
            entry.name = s.where().path;
            entry.handle = found->handle;
            entry.attributes = found->attributes;
            listed = co_await print_entry(s, o, found->handle, entry, out);
        }
        if (!listed)
            code = complain(text + ": " + listed.error().message(), exit_failed);
    }
    co_await s.close();
    co_return code;
}

task<int> cat_one(runtime& r, const std::string& text)
{
    auto where = url_argument(text);
    if (!where)
        co_return exit_usage;
    session s(r, *where);
    const failure failed = co_await s.mount();
    int code = exit_ok;
    if (failed.failed()) {
        code = complain(failed.text(), exit_unreachable);
    } else {
        result<void> copied;
        auto found = co_await s.walk(s.mounted().rest);
        if (!found)
            copied = found.error();
        else if (found->attributes.type == nfs::v3::ftype3::dir)
            copied = error(std::errc::is_a_directory, "cat");
        for (std::uint64_t offset = 0; copied;) {
            auto read = co_await s.nfs().read(found->handle, offset, s.nfs().limits().read);
            if (!read) {
                copied = read.error();
                break;
            }
            for (auto piece : read->data.pieces()) {
                if (std::fwrite(piece.data(), 1, piece.size(), stdout) != piece.size())
                    copied = error::from_errno(errno, "write to the standard output");
            }
            offset += read->data.size();
            if (read->eof || read->data.empty())
                break;
        }
        if (std::fflush(stdout) != 0 && copied)
            copied = error::from_errno(errno, "write to the standard output");
        if (!copied)
            code = complain(text + ": " + copied.error().message(), exit_failed);
    }
    co_await s.close();
    co_return code;
}

task<int> stat_one(runtime& r, const std::string& text, json* out)
{
    auto where = url_argument(text);
    if (!where)
        co_return exit_usage;
    session s(r, *where);
    const failure failed = co_await s.mount();
    int code = exit_ok;
    if (failed.failed()) {
        code = complain(failed.text(), exit_unreachable);
    } else if (auto found = co_await s.walk(s.mounted().rest, false); !found) {
        code = complain(text + ": " + found.error().message(), exit_failed);
    } else {
        const nfs::v3::fattr3& a = found->attributes;
        std::string handle;
        for (std::byte b : found->handle.bytes()) {
            constexpr std::string_view digits = "0123456789abcdef";
            handle += digits[std::size_t(b) >> 4];
            handle += digits[std::size_t(b) & 15];
        }
        if (out != nullptr) {
            json item = attributes_json(a);
            item["url"] = s.where().to_string();
            item["handle"] = handle;
            out->push_back(std::move(item));
        } else {
            print("%s\n  type %s  mode %04o %s  links %u\n  size %llu  used %llu\n  uid %u  gid %u\n"
                  "  fsid %llx  fileid %llu\n  atime %s\n  mtime %s\n  ctime %s\n  handle %s\n",
                  s.where().to_string().c_str(), type_text(a.type), a.mode & 07777, mode_text(a).c_str(),
                  a.nlink, static_cast<unsigned long long>(a.size), static_cast<unsigned long long>(a.used),
                  a.uid, a.gid, static_cast<unsigned long long>(a.fsid),
                  static_cast<unsigned long long>(a.fileid), time_text(a.atime, true).c_str(),
                  time_text(a.mtime, true).c_str(), time_text(a.ctime, true).c_str(), handle.c_str());
        }
    }
    co_await s.close();
    co_return code;
}

task<int> df_one(runtime& r, const std::string& text, json* out)
{
    auto where = url_argument(text);
    if (!where)
        co_return exit_usage;
    session s(r, *where);
    const failure failed = co_await s.mount();
    int code = exit_ok;
    if (failed.failed()) {
        code = complain(failed.text(), exit_unreachable);
    } else {
        auto found = co_await s.walk(s.mounted().rest);
        result<nfs::v3::FSSTAT3res> space = nfs::v3::FSSTAT3res();
        if (found)
            space = co_await s.nfs().fsstat(found->handle);
        else
            space = found.error();
        if (!space) {
            code = complain(text + ": " + space.error().message(), exit_failed);
        } else if (out != nullptr) {
            out->push_back(
                {{"url", s.where().to_string()},
                 {"bytes", {{"total", space->tbytes}, {"free", space->fbytes}, {"available", space->abytes}}},
                 {"files",
                  {{"total", space->tfiles}, {"free", space->ffiles}, {"available", space->afiles}}}});
        } else {
            const double used = space->tbytes == 0
                                    ? 0
                                    : 100.0 * static_cast<double>(space->tbytes - space->fbytes) /
                                          static_cast<double>(space->tbytes);
            print("%-10s %-10s %-10s %4.0f%% %12llu %12llu %s\n", human(space->tbytes).c_str(),
                  human(space->tbytes - space->fbytes).c_str(), human(space->abytes).c_str(), used,
                  static_cast<unsigned long long>(space->tfiles),
                  static_cast<unsigned long long>(space->afiles), s.where().to_string().c_str());
        }
    }
    co_await s.close();
    co_return code;
}

} // namespace

task<int> ls(runtime& r, ls_options o)
{
    json all = json::array();
    int code = exit_ok;
    for (const std::string& text : o.urls)
        code = std::max(code, co_await ls_one(r, o, text, r.options().json ? &all : nullptr));
    if (r.options().json)
        print("%s\n", dump(all).c_str());
    co_return code;
}

task<int> cat(runtime& r, std::vector<std::string> urls)
{
    int code = exit_ok;
    for (const std::string& text : urls)
        code = std::max(code, co_await cat_one(r, text));
    co_return code;
}

task<int> stat(runtime& r, std::vector<std::string> urls)
{
    json all = json::array();
    int code = exit_ok;
    for (const std::string& text : urls)
        code = std::max(code, co_await stat_one(r, text, r.options().json ? &all : nullptr));
    if (r.options().json)
        print("%s\n", dump(all).c_str());
    co_return code;
}

task<int> df(runtime& r, std::vector<std::string> urls)
{
    json all = json::array();
    int code = exit_ok;
    if (!r.options().json)
        print("%-10s %-10s %-10s %5s %12s %12s %s\n", "size", "used", "available", "use", "files",
              "free files", "where");
    for (const std::string& text : urls)
        code = std::max(code, co_await df_one(r, text, r.options().json ? &all : nullptr));
    if (r.options().json)
        print("%s\n", dump(all).c_str());
    co_return code;
}

task<int> mounts(runtime& r, std::string text)
{
    auto where = url_argument(text);
    if (!where)
        co_return exit_usage;
    session s(r, *where);
    const failure failed = co_await s.connect();
    if (failed.failed()) {
        co_await s.close();
        co_return complain(failed.text(), exit_unreachable);
    }
    int code = exit_ok;
    auto service = co_await s.mounts();
    if (!service) {
        code = complain(s.without_mounts(service.error()).text(), exit_unreachable);
    } else {
        auto exports = co_await service->exports();
        auto mounted = co_await service->dump();
        json out = {{"exports", json::array()}, {"mounts", json::array()}};
        if (!exports && exports.error() == std::errc::connection_reset) {
            code = complain(s.without_mounts(exports.error()).text(), exit_unreachable);
        } else if (!exports) {
            code = complain("EXPORT: " + exports.error().message(), exit_failed);
        } else {
            for (const nfs::export_entry& e : *exports) {
                std::string groups;
                for (const std::string& g : e.groups)
                    groups += (groups.empty() ? "" : " ") + g;
                out["exports"].push_back({{"directory", e.directory}, {"groups", e.groups}});
                if (!r.options().json)
                    print("export %s  %s\n", printable(e.directory).c_str(),
                          groups.empty() ? "everybody" : printable(groups).c_str());
            }
        }
        if (mounted) {
            for (const nfs::mount_entry& e : *mounted) {
                out["mounts"].push_back({{"host", e.host}, {"directory", e.directory}});
                if (!r.options().json)
                    print("mounted %s  by %s\n", printable(e.directory).c_str(), printable(e.host).c_str());
            }
        }
        if (r.options().json)
            print("%s\n", dump(out).c_str());
    }
    co_await s.close();
    co_return code;
}

} // namespace verbena::cli
