// SPDX-License-Identifier: Apache-2.0
// Reads an archive by libarchive, without a word of it being believed.
#include "tree.hpp"

#include <verbena/core/net/net.hpp>

#include <algorithm>
#include <archive.h>
#include <archive_entry.h>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <locale.h>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <sys/stat.h>
#include <system_error>
#include <utility>

namespace archive_example {

namespace {

using namespace verbena;
using storage::file_type;

// libarchive gives names in the thread's character set, of which a daemon has none: non-ASCII names would come as question marks.
class utf8_names {
public:
    utf8_names() : own_(::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)), before_(::uselocale(own_)) {}
    ~utf8_names()
    {
        ::uselocale(before_);
        if (own_ != nullptr)
            ::freelocale(own_);
    }
    utf8_names(const utf8_names&) = delete;

private:
    locale_t own_;
    locale_t before_;
};

class reader {
public:
    reader(const std::string& file, const limits& most) : most_(most)
    {
        open(file);
        node root;
        root.attrs.type = file_type::directory;
        root.attrs.mode = 0755;
        root.attrs.links = 2;
        root.attrs.mtime = tree_.archive_mtime;
        tree_.nodes.push_back(std::move(root));
    }

    tree read()
    {
        for (;;) {
            archive_entry* entry = nullptr;
            const int status = ::archive_read_next_header(in_.get(), &entry);
            if (status == ARCHIVE_EOF)
                break;
            if (status != ARCHIVE_OK && status != ARCHIVE_WARN) // of a name's character set, and the like
                damaged();
            // Counted by itself: hard links and what is left out make no node.
            if (++entries_ > most_.entries)
                too_many();
            add(entry);
        }
        for (auto& [where, index] : names_)
            tree_.names.push_back({where.first, where.second, index});
        for (std::size_t i = 0; i < tree_.nodes.size(); ++i)
            complete(tree_.nodes[i].attrs, i);
        return std::move(tree_);
    }

private:
    using names =
        std::map<std::pair<std::uint32_t, std::string>, std::uint32_t>; // of folder and name, the node

    void open(const std::string& file)
    {
        // Only a file: to open a pipe waits for its writer, and who reads a terminal waits for people.
        file_ = net::unique_fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
        struct stat status{};
        if (file_.get() < 0 || ::fstat(file_.get(), &status) != 0)
            throw std::runtime_error("can't be opened (" + std::system_category().message(errno) +
                                     "): name an archive that is here, and that this process may read");
        if (!S_ISREG(status.st_mode))
            throw std::runtime_error("is no regular file: name an archive");
        tree_.archive_size = static_cast<std::uint64_t>(status.st_size);
        tree_.archive_mtime = {status.st_mtim.tv_sec, static_cast<std::uint32_t>(status.st_mtim.tv_nsec)};
        // Those that are asked for, not *_all(): the format mtree names other files of this host and has their contents read,
        // and some filters start programs. One that isn't built in (ARCHIVE_WARN) would be such a program.
        for (auto* support : {&::archive_read_support_filter_gzip, &::archive_read_support_filter_bzip2,
                              &::archive_read_support_filter_xz, &::archive_read_support_filter_zstd,
                              &::archive_read_support_format_tar, &::archive_read_support_format_cpio,
                              &::archive_read_support_format_zip}) {
            if (support(in_.get()) != ARCHIVE_OK)
                throw std::runtime_error("libarchive was built without a format: install Debian's");
        }
        if (::archive_read_open_fd(in_.get(), file_.get(), buffer_.size()) != ARCHIVE_OK)
            damaged();
    }

    [[noreturn]] void damaged()
    {
        const char* why = ::archive_error_string(in_.get());
        throw std::runtime_error(
            std::string("is no archive that can be read, or a damaged one (after ") +
            std::to_string(tree_.nodes.size()) + " entries: " + (why != nullptr ? why : "it ends") +
            "): make it again, as tar, cpio or zip, plain or with gzip, bzip2, xz or zstd");
    }

    [[noreturn]] void too_many() const
    {
        throw std::runtime_error("holds more than max_entries=" + std::to_string(most_.entries) +
                                 ": raise max_entries, or serve an unpacked copy");
    }

    void add(archive_entry* e)
    {
        const auto parts = parts_of(::archive_entry_pathname(e));
        const char* link = ::archive_entry_hardlink(e);
        const auto type = ::archive_entry_filetype(e);
        std::optional<std::uint32_t> made;
        if (!parts)
            ++tree_.left_out.bad_name;
        else if (link != nullptr)
            made = add_hard_link(*parts, link);
        else if (type == AE_IFDIR)
            add_folder(*parts, e);
        else if (type == AE_IFREG || type == AE_IFLNK)
            made = add_file(*parts, e);
        else
            ++tree_.left_out.special;
        // Of an entry that is left out, too: else libarchive would unpack it all the same, and no limit would hold. A cpio archive has
        // the data of a file with the last of its names.
        const bool is_file = made && tree_.nodes[*made].attrs.type == file_type::regular;
        read_data(is_file ? &tree_.nodes[*made] : nullptr, ::archive_entry_size(e));
    }

    // The names on the way to an entry. Nothing for a path that leads out of the archive, or that no client could ask for.
    static std::optional<std::vector<std::string>> parts_of(const char* path)
    {
        std::string_view rest = path == nullptr ? "" : path;
        if (rest.empty() || rest.front() == '/')
            return std::nullopt;
        std::vector<std::string> parts;
        while (!rest.empty()) {
            const std::string_view part = rest.substr(0, rest.find('/'));
            rest.remove_prefix(std::min(part.size() + 1, rest.size()));
            if (part.empty() || part == ".")
                continue;
            if (part == ".." || part.size() > max_name || parts.size() == max_depth)
                return std::nullopt;
            parts.emplace_back(part);
        }
        return parts;
    }

    // The node of a path; nothing if there is none. No symbolic link is followed: they are text for clients, and so can neither
    // go in circles here nor lead out.
    std::optional<std::uint32_t> find(const std::vector<std::string>& parts) const
    {
        std::uint32_t at = 0;
        for (const std::string& part : parts) {
            const auto found = names_.find({at, part});
            if (found == names_.end())
                return std::nullopt;
            at = found->second;
        }
        return at;
    }

    // The folder of the first `count` parts, made as far as it is missing; nothing if a file stands in the way.
    std::optional<std::uint32_t> folder_of(const std::vector<std::string>& parts, std::size_t count)
    {
        std::uint32_t at = 0;
        for (std::size_t i = 0; i < count; ++i) {
            auto found = names_.find({at, parts[i]});
            if (found == names_.end()) {
                node folder;
                folder.attrs.type = file_type::directory;
                folder.attrs.mode = 0755;
                folder.attrs.links = 2;
                folder.attrs.mtime = tree_.archive_mtime;
                folder.parent = at;
                found = add_name(at, parts[i], add_node(std::move(folder)));
                ++tree_.nodes[at].attrs.links; // by its ".."
            }
            at = found->second;
            if (tree_.nodes[at].attrs.type != file_type::directory)
                return std::nullopt;
        }
        return at;
    }

    std::uint32_t add_node(node n)
    {
        if (tree_.nodes.size() >= most_.entries)
            too_many();
        tree_.nodes.push_back(std::move(n));
        return static_cast<std::uint32_t>(tree_.nodes.size() - 1);
    }

    names::iterator add_name(std::uint32_t folder, const std::string& text, std::uint32_t index)
    {
        count(text.size());
        return names_.emplace(std::pair(folder, text), index).first;
    }

    void add_folder(const std::vector<std::string>& parts, archive_entry* e)
    {
        if (const auto folder = folder_of(parts, parts.size()))
            take_attributes(tree_.nodes[*folder], e);
        else
            ++tree_.left_out.conflict;
    }

    // A file or a symbolic link, without its data.
    std::optional<std::uint32_t> add_file(const std::vector<std::string>& parts, archive_entry* e)
    {
        const char* target = ::archive_entry_symlink(e);
        const bool is_link = ::archive_entry_filetype(e) == AE_IFLNK;
        if (is_link && (target == nullptr || std::string_view(target).size() > max_target)) {
            ++tree_.left_out.bad_name;
            return std::nullopt;
        }
        node n;
        n.attrs.type = is_link ? file_type::symlink : file_type::regular;
        n.attrs.links = 0;
        take_attributes(n, e);
        if (is_link) {
            n.data = target;
            count(n.data.size());
        }
        const auto index = add_node(std::move(n));
        return give_name(parts, index) ? std::optional(index) : std::nullopt;
    }

    std::optional<std::uint32_t> add_hard_link(const std::vector<std::string>& parts, const char* to)
    {
        const auto to_parts = parts_of(to);
        const auto index = to_parts ? find(*to_parts) : std::nullopt;
        if (!index || tree_.nodes[*index].attrs.type == file_type::directory) {
            ++tree_.left_out.lost_link;
            return std::nullopt;
        }
        return give_name(parts, *index) ? index : std::nullopt;
    }

    bool give_name(const std::vector<std::string>& parts, std::uint32_t index)
    {
        const auto folder = parts.empty() ? std::nullopt : folder_of(parts, parts.size() - 1);
        const auto before = folder ? names_.find({*folder, parts.back()}) : names_.end();
        if (!folder ||
            (before != names_.end() && tree_.nodes[before->second].attrs.type == file_type::directory)) {
            ++tree_.left_out.conflict;
            return false;
        }
        ++tree_.nodes[index].attrs.links;
        if (before == names_.end()) {
            add_name(*folder, parts.back(), index);
            return true;
        }
        ++tree_.left_out.replaced;
        node& old = tree_.nodes[std::exchange(before->second, index)];
        if (--old.attrs.links == 0)
            old.data = std::string();
        return true;
    }

    static void take_attributes(node& n, archive_entry* e)
    {
        // Without set-user-ID and set-group-ID: who made an archive must not lend rights on the hosts that mount it.
        n.attrs.mode = ::archive_entry_perm(e) & 01777;
        n.attrs.uid = static_cast<std::uint32_t>(::archive_entry_uid(e));
        n.attrs.gid = static_cast<std::uint32_t>(::archive_entry_gid(e));
        n.attrs.mtime = {::archive_entry_mtime(e), static_cast<std::uint32_t>(::archive_entry_mtime_nsec(e))};
    }

    // Into `to`, or to nowhere. Whatever size the entry tells, what comes is counted, and so is a hole.
    void read_data(node* to, std::int64_t told)
    {
        std::string data;
        for (;;) {
            const la_ssize_t size = ::archive_read_data(in_.get(), buffer_.data(), buffer_.size());
            if (size < 0)
                damaged();
            if (size == 0)
                break;
            count(static_cast<std::uint64_t>(size));
            if (to != nullptr)
                data.append(buffer_.data(), static_cast<std::size_t>(size));
        }
        // Holes come as zeros, but for one at the end.
        if (to != nullptr && told > static_cast<std::int64_t>(data.size())) {
            count(static_cast<std::uint64_t>(told) - data.size());
            data.resize(static_cast<std::size_t>(told));
        }
        if (!data.empty()) // else it is one more name of a file that has its data
            to->data = std::move(data);
    }

    void count(std::uint64_t size)
    {
        if (size > most_.bytes - tree_.bytes)
            throw std::runtime_error(
                "unpacks to more than max_bytes=" + std::to_string(most_.bytes) +
                ": raise max_bytes, as all of it is kept in memory, or serve an unpacked copy");
        tree_.bytes += size;
    }

    void complete(storage::attributes& a, std::size_t index) const
    {
        const node& n = tree_.nodes[index];
        a.size = a.type == file_type::directory ? 4096 : n.data.size();
        a.used = n.data.size();
        a.fileid = index + 1;
        a.fsid = static_cast<std::uint64_t>(tree_.archive_mtime.seconds) * 1'000'000'000 +
                 tree_.archive_mtime.nanoseconds;
        a.atime = a.ctime = a.mtime;
    }

    struct free_archive {
        void operator()(archive* a) const noexcept { ::archive_read_free(a); }
    };
    const limits most_;
    const utf8_names locale_;
    net::unique_fd file_;
    std::unique_ptr<archive, free_archive> in_{::archive_read_new()};
    std::array<char, 65536> buffer_;
    names names_;
    std::uint64_t entries_ = 0;
    tree tree_;
};

} // namespace

tree read_tree(const std::string& file, const limits& most) { return reader(file, most).read(); }

} // namespace archive_example
