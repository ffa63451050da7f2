// SPDX-License-Identifier: Apache-2.0
// A module of your own: the back end archive, which serves what an archive holds, read-only.
//
//   verbenad --module build/examples/archive/archive.so nfs --export x.tar.gz:/x,backend=archive
//
// It unpacks all into memory when it is opened. That is the simple way, and the one that works for every format; what it may take
// is a setting.
#include "tree.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/module/loadable.hpp>
#include <verbena/protocols/storage/module.hpp>
#include <verbena/protocols/storage/permissions.hpp>
#include <verbena/protocols/storage/read_only_backend.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <tuple>
#include <unistd.h>

namespace {

using namespace verbena;
using archive_example::name;
using archive_example::node;
using archive_example::tree;

error fails(int code, const char* context) { return error::from_errno(code, context); }

class backend final : public storage::read_only_backend {
public:
    explicit backend(tree t) : tree_(std::move(t)) {}

    std::string_view kind() const noexcept override { return "archive"; }
    const storage::filesystem_info& info() const noexcept override { return info_; }
    storage::handle root() const noexcept override { return handle_of(0); }

    task<result<storage::attributes>> getattr(const storage::request&, const storage::handle& file) override
    {
        const auto n = find(file);
        if (!n)
            co_return n.error();
        co_return (*n)->attrs;
    }

    task<result<storage::lookup_result>> lookup(const storage::request& r, const storage::handle& directory,
                                                std::string_view text) override
    {
        const auto d = find_folder(directory, r.who, X_OK);
        if (!d)
            co_return d.error();
        if (text.size() > archive_example::max_name)
            co_return fails(ENAMETOOLONG, "lookup");
        if (text.empty() || text.find_first_of(std::string_view("/\0", 2)) != std::string_view::npos)
            co_return fails(EINVAL, "lookup of what is no name");
        const std::uint32_t folder = index_of(**d);
        std::uint32_t found = text == ".." ? (*d)->parent : folder;
        if (text != "." && text != "..") {
            const auto at = std::ranges::lower_bound(tree_.names, std::tuple(folder, text), {}, key_of);
            if (at == tree_.names.end() || key_of(*at) != std::tuple(folder, text))
                co_return fails(ENOENT, "lookup");
            found = at->node;
        }
        storage::lookup_result out;
        out.found.handle = handle_of(found);
        out.found.attrs = tree_.nodes[found].attrs;
        out.directory = (*d)->attrs;
        co_return out;
    }

    task<result<std::string>> readlink(const storage::request&, const storage::handle& link) override
    {
        const auto n = find(link);
        if (!n)
            co_return n.error();
        if ((*n)->attrs.type != storage::file_type::symlink)
            co_return fails(EINVAL, "readlink of something else");
        co_return (*n)->data;
    }

    task<result<storage::read_result>> read(const storage::request& r, const storage::handle& file,
                                            std::uint64_t offset, std::span<std::byte> out) override
    {
        const auto n = find(file);
        if (!n)
            co_return n.error();
        const storage::attributes& a = (*n)->attrs;
        if (a.type != storage::file_type::regular)
            co_return fails(a.type == storage::file_type::directory ? EISDIR : EINVAL, "read");
        // As kernels' servers have it: the owner may always read, and what may be executed may be read.
        if (r.who.uid != a.uid && storage::allowed(a, r.who, R_OK | X_OK) == 0)
            co_return fails(EACCES, "read");
        const std::uint64_t left = offset < a.size ? a.size - offset : 0;
        const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(left, out.size()));
        if (count != 0)
            std::memcpy(out.data(), (*n)->data.data() + offset, count);
        storage::read_result done;
        done.count = static_cast<std::uint32_t>(count);
        done.end_of_file = count == left;
        done.attrs = a;
        co_return done;
    }

    // Cookie 1 stands behind ".", 2 behind ".."; of all others it is the place of a name among all of the archive, plus 3. What a
    // handle of this archive lists never changes, so the verifier is always good.
    task<result<storage::readdir_result>> readdir(const storage::request& r, const storage::handle& directory,
                                                  std::uint64_t cookie, std::uint64_t, bool with_attributes,
                                                  storage::directory_sink& sink) override
    {
        const auto d = find_folder(directory, r.who, R_OK);
        if (!d)
            co_return d.error();
        const std::uint32_t folder = index_of(**d);
        const bool may_search = storage::allowed((*d)->attrs, r.who, X_OK) != 0;
        bool taken = false;
        const auto offer = [&](std::uint64_t at, std::string_view text, std::uint32_t index) {
            storage::directory_entry e;
            e.fileid = tree_.nodes[index].attrs.fileid;
            e.cookie = at;
            e.name = text;
            if (with_attributes && may_search) {
                e.attrs = tree_.nodes[index].attrs;
                e.handle = handle_of(index);
            }
            const bool more = sink.take(e);
            taken = taken || more;
            return more;
        };
        bool room = cookie >= 1 || offer(1, ".", folder);
        room = room && (cookie >= 2 || offer(2, "..", (*d)->parent));
        const auto all = std::ranges::equal_range(tree_.names, folder, {}, &name::folder);
        const auto before = static_cast<std::uint64_t>(all.begin() - tree_.names.begin());
        std::uint64_t place = std::max(before, cookie < 3 ? 0 : cookie - 2);
        for (; room && place < before + all.size(); ++place)
            room = offer(place + 3, tree_.names[place].text, tree_.names[place].node);
        if (!room && !taken)
            co_return error(storage::errc::too_small, "no room for one entry");
        storage::readdir_result out;
        out.verifier = 1;
        out.end = room;
        out.directory = (*d)->attrs;
        co_return out;
    }

    task<result<storage::filesystem_stat>> statfs(const storage::request&,
                                                  const storage::handle& file) override
    {
        if (const auto n = find(file); !n)
            co_return n.error();
        storage::filesystem_stat out;
        out.total_bytes = tree_.bytes;
        out.total_files = tree_.nodes.size();
        co_return out;
    }

private:
    // In the host's byte order: a handle comes back to this host only.
    struct handle_bytes {
        std::uint64_t archive_size;
        std::int64_t seconds;
        std::uint32_t nanoseconds;
        std::uint32_t index;
    };
    static_assert(sizeof(handle_bytes) == 24);

    // The index is the same after a restart, as long as the archive is.
    storage::handle handle_of(std::uint32_t index) const noexcept
    {
        const std::array<handle_bytes, 1> h = {handle_bytes{tree_.archive_size, tree_.archive_mtime.seconds,
                                                            tree_.archive_mtime.nanoseconds, index}};
        return storage::handle(std::as_bytes(std::span(h)));
    }
    result<const node*> find(const storage::handle& h) const noexcept
    {
        handle_bytes said{};
        if (h.bytes().size() != sizeof said)
            return error(storage::errc::bad_handle, "a handle of another back end");
        std::memcpy(&said, h.bytes().data(), sizeof said);
        if (said.index >= tree_.nodes.size() || h != handle_of(said.index) ||
            tree_.nodes[said.index].attrs.links == 0)
            return fails(ESTALE, "the archive has changed");
        return &tree_.nodes[said.index];
    }
    result<const node*> find_folder(const storage::handle& h, const storage::credential& who,
                                    unsigned wanted) const noexcept
    {
        const auto d = find(h);
        if (!d)
            return d.error();
        if ((*d)->attrs.type != storage::file_type::directory)
            return fails(ENOTDIR, "a name in something that is no directory");
        if (storage::allowed((*d)->attrs, who, wanted) == 0)
            return fails(EACCES, "a directory");
        return *d;
    }
    std::uint32_t index_of(const node& n) const noexcept
    {
        return static_cast<std::uint32_t>(&n - tree_.nodes.data());
    }
    static std::tuple<std::uint32_t, std::string_view> key_of(const name& n) noexcept
    {
        return {n.folder, n.text};
    }

    const tree tree_;
    const storage::filesystem_info info_;
};

class archive_module final : public storage::backend_module {
public:
    std::vector<setting> settings() const override
    {
        return {
            setting::text("file", "", "The archive: tar, cpio or zip, plain or with gzip, bzip2, xz or zstd")
                .main(),
            setting::number("max_bytes", {0, std::uint64_t(1) << 40}, std::uint64_t(256) << 20,
                            "Bytes that it may unpack to, all of which are kept in memory"),
            setting::number("max_entries", {1, 100'000'000}, 1'000'000, "Files and folders that it may hold"),
        };
    }
    void check(setting_values& values, const std::string& name) const override
    {
        if (values.text("file").empty())
            throw config_error(name + " needs an archive, as in x.tar.gz:/x");
    }
    storage::opened_backend open(const setting_values& values, const storage::open_context& context) override
    {
        const std::string& file = values.text("file");
        try {
            tree t =
                archive_example::read_tree(file, {values.number("max_bytes"), values.number("max_entries")});
            const auto& out = t.left_out;
            if (out.bad_name + out.conflict + out.lost_link + out.special + out.replaced != 0)
                log(log_level::warning, "archive", "entries are left out",
                    {{"file", file},
                     {"bad_name", out.bad_name},
                     {"conflict", out.conflict},
                     {"lost_link", out.lost_link},
                     {"special", out.special},
                     {"replaced", out.replaced}});
            storage::opened_backend opened;
            opened.source = file;
            opened.notes = std::to_string(t.nodes.size()) + " files and folders, " + std::to_string(t.bytes) +
                           " bytes in memory";
            opened.read_only = true;
            opened.files = std::make_unique<backend>(std::move(t));
            return opened;
        } catch (const std::runtime_error& e) {
            throw config_error(context.name + ": file " + file + ' ' + e.what());
        }
    }
};

const module_descriptor descriptor = {
    .name = "archive",
    .version = "1.0",
    .summary = "what an archive holds, read-only",
    .create = []() -> std::unique_ptr<module> { return std::make_unique<archive_module>(); },
};

} // namespace

VERBENA_MODULE(backend, descriptor);
