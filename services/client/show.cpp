// SPDX-License-Identifier: Apache-2.0
// What only looks: ls, stat, cat, layout, df, mounts.
#include "commands.hpp"
#include "folder.hpp"
#include "json_text.hpp"
#include "listing.hpp"
#include "session.hpp"

#include "../standard_output.hpp"
#include <verbena/core/printable.hpp>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>

namespace verbena::cli {
namespace {

using nlohmann::json;

json attributes_json(const attributes& a)
{
    // Not one number: most readers of JSON would make it a double, which holds no nanoseconds.
    const auto time = [](const file_time& t) {
        return json{{"seconds", t.seconds}, {"nanoseconds", t.nseconds}};
    };
    return {{"type", type_text(a.type)},
            {"mode", a.mode},
            {"nlink", a.links},
            {"uid", a.uid},
            {"gid", a.gid},
            {"size", a.size},
            {"used", a.used},
            {"fsid", file_system_of(a)},
            {"fileid", a.fileid},
            {"atime", time(a.atime)},
            {"mtime", time(a.mtime)},
            {"ctime", time(a.ctime)}};
}

void print_line(const std::string& name, const attributes& a, const std::string& target)
{
    print("%s %3u %5u %5u %12llu %s %s%s%s\n", mode_text(a).c_str(), a.links, a.uid, a.gid,
          static_cast<unsigned long long>(a.size), time_text(a.mtime).c_str(), printable(name).c_str(),
          target.empty() ? "" : " -> ", printable(target).c_str());
}

// An array that is printed item by item: a tree may have more of them than fit in memory.
class json_array {
public:
    void add(const json& item)
    {
        std::string text = dump(item);
        for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 3)
            text.insert(at + 1, "  ");
        print("%s\n  %s", empty_ ? "[" : ",", text.c_str());
        empty_ = false;
    }
    void finish() { print("%s", empty_ ? "[]\n" : "\n]\n"); }

private:
    bool empty_ = true;
};

// One run of ls over one URL.
class lister {
public:
    lister(session& s, const ls_options& o, json_array* out) : session_(s), options_(o), out_(out) {}
    task<result<void>> list_tree(std::string path, const node& top);
    task<result<void>> print_entry(const std::string& name, const handle& directory, directory_entry& entry);
    /// Something was not shown, and told.
    bool incomplete() const noexcept { return incomplete_; }

private:
    task<result<void>> list_folder(std::shared_ptr<const folder> f, bool heading);
    task<result<void>> fill_in(const handle& directory, directory_entry& entry);
    result<void> refuse(const std::string& path, const error& why);

    session& session_;
    const ls_options& options_;
    json_array* out_;
    bool incomplete_ = false;
    std::size_t held_ = 0; // octets of pending_, and of what lies above them
    std::deque<std::shared_ptr<const folder>> pending_;
};

// Told here, and the rest goes on; or the error itself, where there is no going on.
result<void> lister::refuse(const std::string& path, const error& why)
{
    if (ends_all(why))
        return error(why);
    say(printable(path) + ": " + why.message());
    incomplete_ = true;
    return {};
}

// Handle and attributes, which servers may leave out.
task<result<void>> lister::fill_in(const handle& directory, directory_entry& entry)
{
    if (entry.found)
        co_return result<void>();
    auto found = co_await session_.nfs().lookup(directory, entry.name);
    if (!found)
        co_return found.error();
    entry.found = *found;
    co_return result<void>();
}

task<result<void>> lister::print_entry(const std::string& name, const handle& directory,
                                       directory_entry& entry)
{
    if (!options_.long_format && out_ == nullptr) {
        print("%s\n", printable(name).c_str());
        co_return result<void>();
    }
    if (!entry.found) {
        auto filled = co_await fill_in(directory, entry);
        if (!filled)
            co_return filled.error();
    }
    std::string target;
    std::optional<error> unread;
    if (entry.found->attributes.type == file_type::lnk) {
        auto text = co_await session_.nfs().readlink(entry.found->handle);
        if (text)
            target = std::move(*text);
        else
            unread = text.error();
    }
    if (out_ == nullptr) {
        print_line(name, entry.found->attributes, target);
    } else {
        json item = attributes_json(entry.found->attributes);
        put_text(item, "name", name);
        if (!target.empty())
            put_text(item, "target", target);
        out_->add(item);
    }
    if (unread)
        co_return *unread;
    co_return result<void>();
}

task<result<void>> lister::list_tree(std::string path, const node& top)
{
    pending_.push_back(std::make_shared<const folder>(std::move(path), top.handle, nullptr, held_));
    for (bool first = true; !pending_.empty(); first = false) {
        std::shared_ptr<const folder> f = std::move(pending_.front());
        pending_.pop_front();
        if (!first && options_.recursive && out_ == nullptr)
            print("\n");
        auto listed = co_await list_folder(f, options_.recursive && out_ == nullptr);
        // What the user named is refused as a whole.
        if (!listed && !first)
            listed = refuse(f->path(), listed.error());
        if (!listed)
            co_return listed.error();
    }
    co_return result<void>();
}

task<result<void>> lister::list_folder(std::shared_ptr<const folder> f, bool heading)
{
    if (heading)
        print("%s:\n", f->path().empty() ? "/" : printable(f->path()).c_str());
    auto entries = co_await session_.nfs().list(f->handle(), options_.long_format || options_.recursive ||
                                                                 out_ != nullptr);
    if (!entries)
        co_return entries.error();
    std::ranges::sort(*entries, {}, &directory_entry::name);
    for (directory_entry& entry : *entries) {
        const std::string path = f->path() + "/" + entry.name;
        if (!nfs::is_name(entry.name)) {
            say(printable(f->path()) + "/: the server tells of an entry with the name '" +
                printable(entry.name) + "', which is none");
            incomplete_ = true;
            continue;
        }
        if (!options_.all && entry.name.starts_with('.'))
            continue;
        auto shown = co_await print_entry(out_ != nullptr && options_.recursive ? path : entry.name,
                                          f->handle(), entry);
        const bool refused = !shown;
        if (refused)
            shown = refuse(path, shown.error());
        if (!shown)
            co_return shown.error();
        if (!options_.recursive || refused)
            continue;
        if (entry.found && entry.found->attributes.type != file_type::dir)
            continue;
        auto filled = co_await fill_in(f->handle(), entry);
        if (!filled) {
            filled = refuse(path, filled.error());
            if (!filled)
                co_return filled.error();
            continue;
        }
        if (entry.found->attributes.type != file_type::dir)
            continue;
        auto below = std::make_shared<const folder>(path, entry.found->handle, f, held_);
        const char* obstacle = below->holds_itself()         ? "a directory that lies in itself"
                               : path.size() > max_tree_path ? "too long a path to go into"
                               : held_ > listing_bytes       ? "too many directories to go into all of them"
                                                             : nullptr;
        if (obstacle != nullptr) {
            say(printable(path) + ": " + obstacle);
            incomplete_ = true;
            continue;
        }
        pending_.push_back(std::move(below));
    }
    co_return result<void>();
}

task<int> ls_one(runtime& r, const ls_options& o, const std::string& text, json_array* out)
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
        auto found = co_await s.walk(s.rest(), !o.directory && !o.long_format);
        result<void> listed;
        lister all(s, o, out);
        if (!found) {
            listed = found.error();
        } else if (found->attributes.type == file_type::dir && !o.directory) {
            std::string top = s.where().path;
            while (top.ends_with('/'))
                top.pop_back();
            listed = co_await all.list_tree(std::move(top), *found);
        } else {
            directory_entry entry;
            entry.name = s.where().path;
            entry.found = *found;
            listed = co_await all.print_entry(entry.name, found->handle, entry);
        }
        code = all.incomplete() ? exit_failed : exit_ok;
        if (!listed)
            code = complain(text + ": " + listed.error().message(), exit_failed);
    }
    co_await s.close();
    co_return code;
}

task<int> cat_one(runtime& r, const std::string& text)
{
    auto where = url_argument(text);
    if (!where || has_no_layouts(r, *where))
        co_return exit_usage;
    session s(r, *where);
    const failure failed = co_await s.mount();
    int code = exit_ok;
    if (failed.failed()) {
        code = complain(failed.text(), exit_unreachable);
    } else {
        result<void> copied;
        auto found = co_await s.walk(s.rest());
        if (!found)
            copied = found.error();
        else if (found->attributes.type == file_type::dir)
            copied = error(std::errc::is_a_directory, "cat");
        std::unique_ptr<open_file> file;
        if (copied) {
            auto opened = co_await s.nfs().open(*found);
            if (opened)
                file = std::move(*opened);
            else
                copied = opened.error();
        }
        for (std::uint64_t offset = 0; copied;) {
            auto read = co_await file->read(offset, s.nfs().read_size());
            if (!read) {
                copied = read.error();
                break;
            }
            if (read->empty())
                break;
            for (auto piece : read->pieces()) {
                if (std::fwrite(piece.data(), 1, piece.size(), stdout) != piece.size())
                    copied = error::from_errno(errno, "write to the standard output");
            }
            offset += read->size();
        }
        if (file)
            (void)co_await file->close(); // nothing was written
        if (std::fflush(stdout) != 0 && copied)
            copied = error::from_errno(errno, "write to the standard output");
        if (!copied)
            code = complain(text + ": " + copied.error().message(), exit_failed);
    }
    co_await s.close();
    co_return code;
}

const char* state_text(nfs::v4::pnfs_rdma_extent_state4 state)
{
    switch (state) {
    case nfs::v4::pnfs_rdma_extent_state4::read_write_data: return "read-write";
    case nfs::v4::pnfs_rdma_extent_state4::read_data: return "read";
    case nfs::v4::pnfs_rdma_extent_state4::invalid_data: return "uninitialized";
    case nfs::v4::pnfs_rdma_extent_state4::none_data: return "hole";
    }
    return "unknown";
}

std::string hexadecimal(std::span<const std::byte> bytes)
{
    std::string text;
    for (const std::byte each : bytes) {
        constexpr std::string_view digits = "0123456789abcdef";
        text += {digits[std::to_integer<unsigned>(each) >> 4], digits[std::to_integer<unsigned>(each) & 15]};
    }
    return text;
}

// Where each device is that the extents name: an address, or why there is none.
task<std::map<std::string, std::string>> addresses_of(nfs::v4::pnfs::layout_user& layouts,
                                                      const std::vector<nfs::v4::pnfs_rdma_extent4>& extents)
{
    std::map<std::string, std::string> out;
    for (const auto& each : extents) {
        const std::string device = hexadecimal(each.device_id);
        if (each.state == nfs::v4::pnfs_rdma_extent_state4::none_data || out.contains(device))
            continue;
        const auto told = co_await layouts.connections().address_of(each.device_id);
        out[device] = told ? told->first + " " + told->second : told.error().message();
    }
    co_return std::move(out);
}

void print_layout(runtime& r, const std::vector<nfs::v4::pnfs_rdma_extent4>& extents,
                  const std::map<std::string, std::string>& addresses)
{
    json all = json::array();
    if (!r.options().json)
        print("%12s %12s %-13s %10s %18s %s\n", "offset", "length", "state", "handle", "address", "device");
    for (const auto& each : extents) {
        const bool is_hole = each.state == nfs::v4::pnfs_rdma_extent_state4::none_data;
        const std::string device = hexadecimal(each.device_id);
        if (!r.options().json) {
            char handle[16] = "-";
            char address[24] = "-";
            if (!is_hole) {
                std::snprintf(handle, sizeof handle, "0x%08x", each.handle);
                std::snprintf(address, sizeof address, "0x%016llx",
                              static_cast<unsigned long long>(each.storage_offset));
            }
            print("%12llu %12llu %-13s %10s %18s %s\n", static_cast<unsigned long long>(each.file_offset),
                  static_cast<unsigned long long>(each.length), state_text(each.state), handle, address,
                  is_hole ? "-" : device.c_str());
            continue;
        }
        json item = {
            {"offset", each.file_offset}, {"length", each.length}, {"state", state_text(each.state)}};
        if (!is_hole) {
            item["handle"] = each.handle;
            item["address"] = each.storage_offset;
            item["device"] = device;
        }
        all.push_back(std::move(item));
    }
    if (r.options().json) {
        json devices = json::object();
        for (const auto& [device, address] : addresses)
            devices[device] = address;
        print("%s\n", dump(json{{"extents", std::move(all)}, {"devices", std::move(devices)}}).c_str());
        return;
    }
    for (const auto& [device, address] : addresses)
        print("device %s is at %s\n", device.c_str(), printable(address).c_str());
}

task<result<void>> show_layout(runtime& r, session& s, bool write)
{
    auto found = co_await s.walk(s.rest());
    if (!found)
        co_return found.error();
    if (found->attributes.type != file_type::reg)
        co_return error(std::errc::invalid_argument, "only a regular file has a layout");
    if (found->attributes.size == 0)
        co_return error(std::errc::invalid_argument, "an empty file has no layout: write some bytes first");
    auto opened =
        co_await s.nfs4().open(*found, write ? nfs::v4::share4::access_write : nfs::v4::share4::access_read);
    if (!opened)
        co_return opened.error();
    const std::unique_ptr<nfs::v4::pnfs::layout_file> file = s.layouts()->use(std::move(*opened));
    auto extents = co_await file->extents(write ? nfs::v4::layoutiomode4::rw : nfs::v4::layoutiomode4::read);
    if (extents) {
        const auto addresses = co_await addresses_of(*s.layouts(), *extents);
        print_layout(r, *extents, addresses);
    }
    auto closed = co_await file->close();
    if (!extents)
        co_return extents.error();
    co_return closed;
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
    } else if (auto found = co_await s.walk(s.rest(), false); !found) {
        code = complain(text + ": " + found.error().message(), exit_failed);
    } else {
        const attributes& a = found->attributes;
        std::string handle;
        for (std::byte b : found->handle.bytes()) {
            constexpr std::string_view digits = "0123456789abcdef";
            handle += digits[std::size_t(b) >> 4];
            handle += digits[std::size_t(b) & 15];
        }
        if (out != nullptr) {
            json item = attributes_json(a);
            put_text(item, "url", s.where().to_string());
            item["handle"] = handle;
            out->push_back(std::move(item));
        } else {
            print("%s\n  type %s  mode %04o %s  links %u\n  size %llu  used %llu\n  uid %u  gid %u\n"
                  "  fsid %llx  fileid %llu\n  atime %s\n  mtime %s\n  ctime %s\n  handle %s\n",
                  s.where().to_string().c_str(), type_text(a.type), a.mode & 07777, mode_text(a).c_str(),
                  a.links, static_cast<unsigned long long>(a.size), static_cast<unsigned long long>(a.used),
                  a.uid, a.gid, static_cast<unsigned long long>(file_system_of(a)),
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
        auto found = co_await s.walk(s.rest());
        result<nfs::v4::file_system_space> space = nfs::v4::file_system_space();
        if (found)
            space = co_await s.nfs().space(found->handle);
        else
            space = found.error();
        if (!space) {
            code = complain(text + ": " + space.error().message(), exit_failed);
        } else if (out != nullptr) {
            out->push_back(
                {{"url", s.where().to_string()},
                 {"bytes", {{"total", space->total}, {"free", space->free}, {"available", space->available}}},
                 {"files",
                  {{"total", space->files},
                   {"free", space->files_free},
                   {"available", space->files_available}}}});
        } else {
            // More free than there is says nothing of what is used.
            const bool known = space->free <= space->total;
            const std::uint64_t used = known ? space->total - space->free : 0;
            char part[16] = "-";
            if (known)
                std::snprintf(part, sizeof part, "%.0f%%",
                              space->total == 0
                                  ? 0
                                  : 100.0 * static_cast<double>(used) / static_cast<double>(space->total));
            print("%-10s %-10s %-10s %5s %12llu %12llu %s\n", human(space->total).c_str(),
                  known ? human(used).c_str() : "-", human(space->available).c_str(), part,
                  static_cast<unsigned long long>(space->files),
                  static_cast<unsigned long long>(space->files_available), s.where().to_string().c_str());
        }
    }
    co_await s.close();
    co_return code;
}

} // namespace

task<int> ls(runtime& r, ls_options o)
{
    json_array all;
    int code = exit_ok;
    for (const std::string& text : o.urls)
        code = std::max(code, co_await ls_one(r, o, text, r.options().json ? &all : nullptr));
    if (r.options().json)
        all.finish();
    co_return code;
}

task<int> cat(runtime& r, std::vector<std::string> urls)
{
    int code = exit_ok;
    for (const std::string& text : urls)
        code = std::max(code, co_await cat_one(r, text));
    co_return code;
}

bool has_no_layouts(const runtime& r, const url& where)
{
    if (r.options().layouts != layout_use::require || where.version != nfs_version::v3)
        return false;
    (void)complain(where.to_string() + ": NFS version 3 has no layouts: leave ?vers=3 out of the URL",
                   exit_usage);
    return true;
}

task<int> layout(runtime& r, layout_command o)
{
    auto where = url_argument(o.url);
    if (!where || has_no_layouts(r, *where))
        co_return exit_usage;
    session s(r, *where);
    const failure failed = co_await s.mount();
    int code = exit_ok;
    if (failed.failed()) {
        code = complain(failed.text(), exit_unreachable);
    } else {
        const auto shown = co_await show_layout(r, s, o.write);
        if (!shown)
            code = complain(o.url + ": " + shown.error().message(), exit_failed);
    }
    co_await s.close();
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
        bool is_cut = service->is_cut();
        auto mounted = co_await service->dump();
        is_cut = is_cut || service->is_cut();
        json out = {{"exports", json::array()}, {"mounts", json::array()}};
        if (!exports && exports.error() == std::errc::connection_reset) {
            code = complain(s.without_mounts(exports.error()).text(), exit_unreachable);
        } else if (!exports) {
            code = complain("EXPORT: " + exports.error().message(), exit_failed);
        } else {
            for (const nfs::export_entry& e : *exports) {
                std::string groups;
                json item = {{"groups", e.groups}};
                put_text(item, "directory", e.directory);
                json octets = json::array();
                bool readable = true;
                for (const std::string& g : e.groups) {
                    groups += (groups.empty() ? "" : " ") + g;
                    octets.push_back(base64(g));
                    readable = readable && is_utf8(g);
                }
                if (!readable)
                    item["groups_base64"] = std::move(octets);
                out["exports"].push_back(std::move(item));
                if (!r.options().json)
                    print("export %s  %s\n", printable(e.directory).c_str(),
                          groups.empty() ? "everybody" : printable(groups).c_str());
            }
        }
        if (!mounted && exports && mounted.error().code().category() != rpc::accept_category())
            code = complain("DUMP: " + mounted.error().message(), exit_failed);
        if (mounted) {
            for (const nfs::mount_entry& e : *mounted) {
                json item;
                put_text(item, "host", e.host);
                put_text(item, "directory", e.directory);
                out["mounts"].push_back(std::move(item));
                if (!r.options().json)
                    print("mounted %s  by %s\n", printable(e.directory).c_str(), printable(e.host).c_str());
            }
        }
        if (r.options().json)
            print("%s\n", dump(out).c_str());
        if (is_cut)
            code =
                complain("the server's list goes on behind " + std::to_string(nfs::mount_client::max_list) +
                             " entries, which is all that is shown",
                         exit_failed);
    }
    co_await s.close();
    co_return code;
}

} // namespace verbena::cli
