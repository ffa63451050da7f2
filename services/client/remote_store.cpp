// SPDX-License-Identifier: Apache-2.0
#include "commands.hpp"
#include "store.hpp"

#include <algorithm>
#include <unordered_map>

namespace verbena::cli {
namespace {

/// Directories whose handles are remembered; beyond, all are forgotten and looked up again.
constexpr std::size_t max_known_directories = 65536;

timespec time_of(const file_time& t) noexcept
{
    timespec out{};
    // Among what is no nanosecond are utimensat(2)'s UTIME_NOW and UTIME_OMIT.
    out.tv_sec = static_cast<std::time_t>(t.seconds);
    out.tv_nsec = static_cast<long>(std::min<std::uint32_t>(t.nseconds, 999'999'999));
    return out;
}

nfs::v4::settime4 set_time(const timespec& t) noexcept
{
    return {nfs::v4::time_how4::set_to_client_time, {t.tv_sec, static_cast<std::uint32_t>(t.tv_nsec)}};
}

file_info info_of(const attributes& a) noexcept
{
    file_info info;
    info.kind = a.type == file_type::reg   ? file_kind::regular
                : a.type == file_type::dir ? file_kind::directory
                : a.type == file_type::lnk ? file_kind::link
                                           : file_kind::other;
    info.mode = a.mode & 07777;
    info.size = a.size;
    info.mtime = time_of(a.mtime);
    info.atime = time_of(a.atime);
    info.ctime = time_of(a.ctime);
    info.file_system = a.fsid.major;
    info.view = a.fsid.minor;
    info.id = a.fileid;
    return info;
}

class remote_store final : public store {
public:
    remote_store(session& s, std::string root) : session_(s), root_(std::move(root)) {}

    task<result<file_info>> stat(std::string path, bool follow) override
    {
        auto found = co_await find(path, follow);
        if (!found)
            co_return found.error();
        co_return info_of(found->attributes);
    }

    task<result<std::vector<std::string>>> list(std::string path) override
    {
        auto directory = co_await directory_at(path);
        if (!directory)
            co_return directory.error();
        if (lies_in_itself(path, *directory))
            co_return error(std::errc::too_many_symbolic_link_levels, "a directory that lies in itself");
        if (path.size() > max_tree_path)
            co_return error(std::errc::filename_too_long, "too long a path to go into");
        auto entries = co_await session_.nfs().list(*directory, false);
        if (!entries)
            co_return entries.error();
        std::vector<std::string> names;
        for (directory_entry& e : *entries)
            names.push_back(std::move(e.name));
        // A directory that changes meanwhile may show a name twice; two copies of it would race.
        std::ranges::sort(names);
        names.erase(std::ranges::unique(names).begin(), names.end());
        co_return std::move(names);
    }

    task<result<std::string>> read_link(std::string path) override
    {
        auto found = co_await find(path, false);
        if (!found)
            co_return found.error();
        co_return co_await session_.nfs().readlink(found->handle);
    }

    task<result<std::unique_ptr<open_file>>> open(std::string path) override
    {
        auto found = co_await find(path, true);
        if (!found)
            co_return found.error();
        co_return co_await session_.nfs().open(*found);
    }

    task<result<std::unique_ptr<open_file>>> create(std::string path, std::uint32_t mode) override
    {
        auto place = co_await locate(path);
        if (!place)
            co_return place.error();
        new_attributes attributes;
        attributes.mode = mode;
        co_return co_await session_.nfs().create(place->directory, place->name, attributes);
    }

    task<result<std::uint64_t>> copy_within(store& source, open_file& from, open_file& to,
                                            std::uint64_t length,
                                            std::function<void(std::uint64_t)> progress) override
    {
        const error not_there(std::errc::not_supported, "a copy within the server");
        auto* const other = dynamic_cast<remote_store*>(&source);
        if (!copies_within_ || other == nullptr || !session_.nfs().copies_from(other->session_.nfs()))
            co_return not_there;
        auto copied = co_await session_.nfs().copy(from, to, length, std::move(progress));
        if (copied || ends_all(copied.error()))
            co_return copied;
        // Reading and writing will meet the cause, or it is one that holds for all files: that server can't, or the exports are two file systems.
        copies_within_ = copied.error() != std::errc::not_supported &&
                         copied.error() != std::errc::operation_not_supported &&
                         copied.error() != std::errc::cross_device_link;
        co_return not_there;
    }

    task<result<void>> make_directory(std::string path, std::uint32_t mode) override
    {
        auto there = co_await find(path, true);
        if (there) {
            if (there->attributes.type != file_type::dir)
                co_return error(std::errc::not_a_directory, "MKDIR");
            remember(path, there->handle);
            co_return result<void>();
        }
        auto place = co_await locate(path);
        if (!place)
            co_return place.error();
        new_attributes attributes;
        attributes.mode = mode | 0700;
        auto made = co_await session_.nfs().mkdir(place->directory, place->name, attributes);
        if (!made)
            co_return made.error();
        remember(path, made->handle);
        co_return result<void>();
    }

    task<result<void>> make_link(std::string path, std::string target) override
    {
        auto place = co_await locate(path);
        if (!place)
            co_return place.error();
        const handle& directory = place->directory;
        const std::string& name = place->name;
        new_attributes attributes;
        attributes.mode = 0777;
        auto made = co_await session_.nfs().symlink(directory, name, target, attributes);
        if (!made && made.error() == std::errc::file_exists) {
            auto there = co_await session_.nfs().lookup(directory, name);
            if (there && there->attributes.type == file_type::lnk) {
                auto removed = co_await session_.nfs().remove(directory, name);
                if (removed)
                    made = co_await session_.nfs().symlink(directory, name, target, attributes);
            }
        }
        if (!made)
            co_return made.error();
        co_return result<void>();
    }

    task<result<void>> set_mode_and_times(std::string path, const file_info& info) override
    {
        auto found = co_await find(path, false);
        if (!found)
            co_return found.error();
        new_attributes attributes;
        if (info.kind != file_kind::link)
            attributes.mode = info.mode;
        attributes.atime = set_time(info.atime);
        attributes.mtime = set_time(info.mtime);
        co_return co_await session_.nfs().setattr(found->handle, attributes);
    }

    std::uint32_t transfer_size() const noexcept override
    {
        return std::min(session_.nfs().read_size(), session_.nfs().write_size());
    }
    // Numbers of files are not the same in both versions.
    std::string place() const override
    {
        return session_.where().host + (session_.version() == nfs_version::v3 ? "" : " in version 4");
    }
    std::string server() const override
    {
        url u = session_.where();
        u.path.clear();
        return u.to_string() + (session_.version() == nfs_version::v3
                                    ? ""
                                    : "?vers=" + std::string(cli::to_string(session_.version())));
    }
    std::string name_of(const std::string& path) const override
    {
        url u = session_.where();
        u.path = join(u.path, path);
        return u.to_string();
    }

private:
    static std::string parent_of(const std::string& path)
    {
        const std::size_t slash = path.rfind('/');
        return slash == std::string::npos ? std::string() : path.substr(0, slash);
    }
    static std::string leaf_of(const std::string& path)
    {
        const std::size_t slash = path.rfind('/');
        return slash == std::string::npos ? path : path.substr(slash + 1);
    }
    // As far as those are known in which it lies. Every one of them was listed.
    bool lies_in_itself(const std::string& path, const handle& of) const
    {
        for (std::string above = path; !above.empty();) {
            above = parent_of(above);
            const auto known = directories_.find(above);
            if (known != directories_.end() && known->second == of)
                return true;
        }
        return false;
    }
    void remember(const std::string& path, const handle& of)
    {
        if (directories_.size() >= max_known_directories)
            directories_.clear();
        directories_[path] = of;
    }

    task<result<handle>> directory_at(std::string path)
    {
        if (const auto known = directories_.find(path); known != directories_.end())
            co_return known->second;
        const std::string whole = join(root_, path);
        auto found = co_await session_.walk(whole);
        if (!found)
            co_return found.error();
        if (found->attributes.type != file_type::dir)
            co_return error(std::errc::not_a_directory, "LOOKUP");
        remember(path, found->handle);
        co_return found->handle;
    }

    struct entry_place {
        handle directory;
        std::string name;
    };
    // Where `path` is an entry of; it need not exist. The tree's own root is one of its parent directory.
    task<result<entry_place>> locate(std::string path)
    {
        entry_place out;
        if (!path.empty()) {
            auto directory = co_await directory_at(parent_of(path));
            if (!directory)
                co_return directory.error();
            out.directory = *directory;
            out.name = leaf_of(path);
            co_return std::move(out);
        }
        std::string whole = root_;
        while (whole.ends_with('/'))
            whole.pop_back();
        out.name = leaf_of(whole);
        if (out.name.empty())
            co_return error(std::errc::is_a_directory, "that is the export itself");
        const std::string above = parent_of(whole);
        auto parent = co_await session_.walk(above);
        if (!parent)
            co_return parent.error();
        out.directory = parent->handle;
        auto may = co_await session_.may_make_in(out.directory);
        if (!may)
            co_return may.error();
        co_return std::move(out);
    }

    task<result<node>> find(std::string path, bool follow)
    {
        if (path.empty())
            co_return co_await session_.walk(root_, follow);
        auto directory = co_await directory_at(parent_of(path));
        if (!directory)
            co_return directory.error();
        const std::string name = leaf_of(path);
        co_return co_await session_.nfs().walk(*directory, name, follow);
    }

    session& session_;
    std::string root_;
    bool copies_within_ = true; // as far as it is known
    std::unordered_map<std::string, handle> directories_;
};

} // namespace

std::unique_ptr<store> make_remote_store(session& s, std::string root)
{
    return std::make_unique<remote_store>(s, std::move(root));
}

} // namespace verbena::cli
