// SPDX-License-Identifier: Apache-2.0
// A file system of a few nodes for tests of what stands above one. It does no more than those need,
// fails when it is told to, and remembers what it was asked.
#pragma once

#include <verbena/core/task/event.hpp>
#include <verbena/protocols/storage/file_backend.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

namespace verbena::test {

class fake_backend final : public storage::file_backend {
public:
    struct node {
        storage::attributes attrs;
        std::map<std::string, std::uint64_t, std::less<>> children; // of a directory
        std::uint64_t parent = 0;                                   // of a directory
        std::vector<std::byte> data;
        std::string target; // of a symbolic link
        std::uint64_t verifier = 0;
    };
    static constexpr std::uint64_t root_id = 1;

    explicit fake_backend(std::size_t size_of_handles = 12) : handle_size(size_of_handles)
    {
        properties.least_located = 65536;
        node& top = nodes_[root_id];
        top.attrs = attributes_of(root_id, storage::file_type::directory, 0755);
        top.parent = root_id;
    }

    // What tests look at and set.
    std::size_t handle_size;
    std::function<void()> meanwhile; ///< happens in every call but getattr and access
    std::optional<error> fail;       ///< what everything but getattr and access answers
    std::optional<error> fail_getattr;
    unsigned permissions = R_OK | W_OK | X_OK; ///< what access() grants
    storage::filesystem_info properties;
    std::uint64_t boot = 0x1122334455667788;
    bool sync_fails_meanwhile =
        false; ///< another's sync, while write() runs, so that write_verifier() changes
    std::uint64_t directory_verifier = 0xaabbccdd00112233;
    bool folds_case = false;  ///< names in lower case are found by all spellings
    bool give_before = false; ///< changes have attributes from before
    std::string called;       ///< the last procedure but getattr and access
    storage::credential who;
    std::string client;
    storage::set_attributes set;
    std::optional<storage::file_time> guard;
    storage::stability stable{};
    storage::create_mode mode{};
    std::uint64_t verifier = 0;
    std::uint64_t offset = 0;
    std::uint64_t count = 0;
    std::size_t pieces = 0;
    int in_file = -1;      ///< a descriptor that locate() gives, which has the data of every file
    event* slow = nullptr; ///< what read() waits for
    int reading = 0;       ///< reads that wait

    node& operator[](std::uint64_t id) { return nodes_[id]; }
    bool has(std::uint64_t parent, std::string_view name) { return nodes_[parent].children.contains(name); }
    std::uint64_t add(std::uint64_t parent, std::string_view name, storage::file_type type,
                      std::uint32_t permission_bits = 0644)
    {
        const std::uint64_t id = ++last_id_;
        node& made = nodes_[id];
        made.attrs = attributes_of(id, type, permission_bits);
        made.parent = parent;
        nodes_[parent].children.emplace(name, id);
        return id;
    }
    storage::handle handle_of(std::uint64_t id) const
    {
        std::array<std::byte, storage::handle::max_size> bytes{};
        std::memcpy(bytes.data(), &id, sizeof id);
        return storage::handle({bytes.data(), handle_size});
    }

    std::string_view kind() const noexcept override { return "fake"; }
    const storage::filesystem_info& info() const noexcept override { return properties; }
    storage::handle root() const noexcept override { return handle_of(root_id); }
    std::uint64_t write_verifier() const noexcept override { return boot; }

    task<result<storage::attributes>> getattr(const storage::request& r, const storage::handle& file) override
    {
        who = r.who;
        if (fail_getattr)
            co_return *fail_getattr;
        const node* found = find(file);
        if (found == nullptr)
            co_return error::from_errno(ESTALE);
        co_return found->attrs;
    }
    task<result<unsigned>> access(const storage::request&, const storage::handle& file,
                                  unsigned wanted) override
    {
        if (find(file) == nullptr)
            co_return error::from_errno(ESTALE);
        count = wanted;
        co_return permissions& wanted;
    }
    task<result<storage::change>> setattr(const storage::request& r, const storage::handle& file,
                                          const storage::set_attributes& s,
                                          std::optional<storage::file_time> g) override
    {
        if (const auto failure = begin("setattr", r))
            co_return *failure;
        set = s;
        guard = g;
        co_return change_of(file);
    }
    task<result<storage::lookup_result>> lookup(const storage::request& r, const storage::handle& directory,
                                                std::string_view name) override
    {
        if (const auto failure = begin("lookup", r))
            co_return *failure;
        const node* parent = find(directory);
        if (parent == nullptr)
            co_return error::from_errno(ESTALE);
        if (parent->attrs.type != storage::file_type::directory)
            co_return error::from_errno(ENOTDIR);
        std::uint64_t id = 0;
        std::string folded(name);
        if (folds_case)
            std::ranges::transform(folded, folded.begin(),
                                   [](unsigned char c) { return char(std::tolower(c)); });
        name = folded;
        if (name == ".")
            id = parent->attrs.fileid;
        else if (name == "..")
            id = parent->parent;
        else if (const auto child = parent->children.find(name); child != parent->children.end())
            id = child->second;
        else
            co_return error::from_errno(ENOENT);
        storage::lookup_result found;
        found.found.handle = handle_of(id);
        found.found.attrs = nodes_[id].attrs;
        found.directory = parent->attrs;
        co_return found;
    }
    task<result<storage::opened_file>> open(const storage::request& r, const storage::handle& file,
                                            unsigned wanted, storage::open_right right) override
    {
        if (const auto failure = begin("open", r))
            co_return *failure;
        co_return co_await file_backend::open(r, file, wanted, right);
    }
    task<result<std::string>> readlink(const storage::request& r, const storage::handle& link) override
    {
        if (const auto failure = begin("readlink", r))
            co_return *failure;
        co_return find(link)->target;
    }
    task<result<storage::read_result>> read(const storage::request& r, const storage::handle& file,
                                            std::uint64_t at, std::span<std::byte> out) override
    {
        if (const auto failure = begin("read", r))
            co_return *failure;
        if (slow != nullptr) {
            ++reading;
            (void)co_await slow->wait();
            --reading;
        }
        offset = at;
        count = out.size();
        const node* found = find(file);
        const std::size_t size = found->data.size();
        const std::size_t begin = std::min<std::uint64_t>(at, size);
        const std::size_t length = std::min(out.size(), size - begin);
        std::copy_n(found->data.begin() + static_cast<std::ptrdiff_t>(begin), length, out.begin());
        storage::read_result done;
        done.count = static_cast<std::uint32_t>(length);
        done.end_of_file = begin + length == size;
        done.attrs = found->attrs;
        co_return done;
    }
    task<result<storage::mapping>> map(const storage::request&, const storage::handle&, std::uint64_t,
                                       std::uint64_t, storage::map_use) override
    {
        called = "map";
        co_return storage::mapping();
    }
    task<result<storage::change>> note_written(const storage::request&, const storage::handle&,
                                               storage::peer_writes) override
    {
        called = "note_written";
        co_return storage::change();
    }
    task<result<storage::located_read>> locate(const storage::request&, const storage::handle& file,
                                               std::uint64_t at, std::uint32_t length,
                                               storage::locatable where) override
    {
        storage::located_read out;
        const node* found = find(file);
        if (in_file < 0 || where == storage::locatable::memory || at >= found->data.size())
            co_return out;
        const std::uint64_t left = found->data.size() - at;
        out.here = true;
        out.read.count = static_cast<std::uint32_t>(std::min<std::uint64_t>(length, left));
        out.read.end_of_file = length >= left;
        out.read.attrs = found->attrs;
        out.bytes = file_range(std::make_shared<int>(0), in_file, at, out.read.count);
        co_return out;
    }
    task<result<storage::write_result>> write(const storage::request& r, const storage::handle& file,
                                              std::uint64_t at,
                                              std::span<const std::span<const std::byte>> from,
                                              storage::stability wanted) override
    {
        if (const auto failure = begin("write", r))
            co_return *failure;
        node* found = find(file);
        offset = at;
        stable = wanted;
        pieces = from.size();
        storage::write_result done;
        for (const auto piece : from) {
            if (piece.empty())
                continue;
            const std::size_t end = at + done.count + piece.size();
            if (found->data.size() < end)
                found->data.resize(end);
            std::copy(piece.begin(), piece.end(),
                      found->data.begin() + static_cast<std::ptrdiff_t>(at + done.count));
            done.count += static_cast<std::uint32_t>(piece.size());
        }
        done.committed = wanted;
        if (sync_fails_meanwhile)
            ++boot;
        done.file = change_of(file);
        co_return done;
    }
    task<result<storage::create_result>> create(const storage::request& r, const storage::handle& directory,
                                                std::string_view name, storage::create_mode m,
                                                const storage::set_attributes& s, std::uint64_t v) override
    {
        mode = m;
        verifier = v;
        co_return make("create", r, directory, name, storage::file_type::regular, s);
    }
    task<result<storage::create_result>> mkdir(const storage::request& r, const storage::handle& directory,
                                               std::string_view name,
                                               const storage::set_attributes& s) override
    {
        co_return make("mkdir", r, directory, name, storage::file_type::directory, s);
    }
    task<result<storage::create_result>> symlink(const storage::request& r, const storage::handle& directory,
                                                 std::string_view name, std::string_view target,
                                                 const storage::set_attributes& s) override
    {
        auto made = make("symlink", r, directory, name, storage::file_type::symlink, s);
        if (made)
            nodes_[last_id_].target = target;
        co_return made;
    }
    task<result<storage::create_result>> mknod(const storage::request& r, const storage::handle& directory,
                                               std::string_view name, storage::file_type type,
                                               std::uint32_t major, std::uint32_t minor,
                                               const storage::set_attributes& s) override
    {
        auto made = make("mknod", r, directory, name, type, s);
        if (made) {
            nodes_[last_id_].attrs.device_major = major;
            nodes_[last_id_].attrs.device_minor = minor;
            made->made.attrs = nodes_[last_id_].attrs;
        }
        co_return made;
    }
    task<result<storage::change>> remove(const storage::request& r, const storage::handle& directory,
                                         std::string_view name) override
    {
        co_return unlink("remove", r, directory, name);
    }
    task<result<storage::change>> rmdir(const storage::request& r, const storage::handle& directory,
                                        std::string_view name) override
    {
        co_return unlink("rmdir", r, directory, name);
    }
    task<result<storage::rename_result>> rename(const storage::request& r,
                                                const storage::handle& from_directory, std::string_view from,
                                                const storage::handle& to_directory,
                                                std::string_view to) override
    {
        if (const auto failure = begin("rename", r))
            co_return *failure;
        auto& source = find(from_directory)->children;
        const auto moved = source.find(from);
        if (moved == source.end())
            co_return error::from_errno(ENOENT);
        const std::uint64_t id = moved->second;
        source.erase(moved);
        find(to_directory)->children.insert_or_assign(std::string(to), id);
        storage::rename_result done;
        done.from = change_of(from_directory);
        done.to = change_of(to_directory);
        co_return done;
    }
    task<result<storage::link_result>> link(const storage::request& r, const storage::handle& file,
                                            const storage::handle& directory, std::string_view name) override
    {
        if (const auto failure = begin("link", r))
            co_return *failure;
        find(directory)->children.emplace(name, find(file)->attrs.fileid);
        ++find(file)->attrs.links;
        storage::link_result done;
        done.file = find(file)->attrs;
        done.directory = change_of(directory);
        co_return done;
    }
    // The cookie of an entry is its place in the listing, counted from 1.
    task<result<storage::readdir_result>> readdir(const storage::request& r, const storage::handle& directory,
                                                  std::uint64_t cookie, std::uint64_t v, bool with_attributes,
                                                  storage::directory_sink& sink) override
    {
        if (const auto failure = begin("readdir", r))
            co_return *failure;
        const node* from = find(directory);
        if (from == nullptr || from->attrs.type != storage::file_type::directory)
            co_return error::from_errno(ENOTDIR);
        if (v != (cookie == 0 ? 0 : directory_verifier))
            co_return error(make_error_code(storage::errc::bad_cookie));
        std::vector<std::pair<std::string_view, std::uint64_t>> all = {{".", from->attrs.fileid},
                                                                       {"..", from->parent}};
        all.insert(all.end(), from->children.begin(), from->children.end());
        storage::readdir_result done;
        done.verifier = directory_verifier;
        done.directory = from->attrs;
        std::uint64_t place = cookie;
        for (; place < all.size(); ++place) {
            storage::directory_entry entry;
            entry.name = all[place].first;
            entry.fileid = all[place].second;
            entry.cookie = place + 1;
            if (with_attributes) {
                entry.attrs = nodes_[entry.fileid].attrs;
                entry.handle = handle_of(entry.fileid);
            }
            if (!sink.take(entry))
                break;
        }
        done.end = place >= all.size();
        co_return done;
    }
    task<result<storage::filesystem_stat>> statfs(const storage::request& r, const storage::handle&) override
    {
        if (const auto failure = begin("statfs", r))
            co_return *failure;
        storage::filesystem_stat space;
        space.total_bytes = 1000;
        space.free_bytes = 600;
        space.available_bytes = 500;
        space.total_files = 100;
        space.free_files = 60;
        space.available_files = 50;
        co_return space;
    }
    task<result<storage::seek_result>> seek(const storage::request& r, const storage::handle&, std::uint64_t,
                                            storage::extent) override
    {
        return note<storage::seek_result>("seek", r);
    }
    task<result<storage::change>> allocate(const storage::request& r, const storage::handle&, std::uint64_t,
                                           std::uint64_t) override
    {
        return note<storage::change>("allocate", r);
    }
    task<result<storage::change>> deallocate(const storage::request& r, const storage::handle&, std::uint64_t,
                                             std::uint64_t) override
    {
        return note<storage::change>("deallocate", r);
    }
    task<result<storage::copy_result>> copy(const storage::request& r, const storage::handle&, std::uint64_t,
                                            const storage::handle&, std::uint64_t,
                                            std::uint64_t length) override
    {
        storage::copy_result done;
        done.count = length / 2;
        if (const auto failure = begin("copy", r))
            co_return *failure;
        co_return done;
    }
    task<result<storage::change>> clone(const storage::request& r, const storage::handle&, std::uint64_t,
                                        const storage::handle&, std::uint64_t, std::uint64_t) override
    {
        return note<storage::change>("clone", r);
    }
    task<result<std::vector<std::byte>>> getxattr(const storage::request& r, const storage::handle&,
                                                  std::string_view) override
    {
        return note<std::vector<std::byte>>("getxattr", r);
    }
    task<result<storage::change>> setxattr(const storage::request& r, const storage::handle&,
                                           std::string_view, std::span<const std::byte>,
                                           storage::xattr_mode) override
    {
        return note<storage::change>("setxattr", r);
    }
    task<result<std::vector<std::string>>> listxattrs(const storage::request& r,
                                                      const storage::handle&) override
    {
        return note<std::vector<std::string>>("listxattrs", r);
    }
    task<result<storage::access_list>> getacl(const storage::request& r, const storage::handle&) override
    {
        return note<storage::access_list>("getacl", r);
    }
    task<result<storage::change>> removexattr(const storage::request& r, const storage::handle&,
                                              std::string_view) override
    {
        return note<storage::change>("removexattr", r);
    }
    task<result<storage::change>> commit(const storage::request& r, const storage::handle& file,
                                         std::uint64_t at, std::uint32_t length) override
    {
        if (const auto failure = begin("commit", r))
            co_return *failure;
        offset = at;
        count = length;
        co_return change_of(file);
    }

private:
    template<class T>
    task<result<T>> note(const char* what, const storage::request& r)
    {
        if (const auto failure = begin(what, r))
            co_return *failure;
        co_return T();
    }
    static storage::attributes attributes_of(std::uint64_t id, storage::file_type type, std::uint32_t mode)
    {
        storage::attributes attrs;
        attrs.type = type;
        attrs.mode = mode;
        attrs.fileid = id;
        attrs.fsid = 77;
        attrs.uid = 1000;
        attrs.gid = 100;
        attrs.mtime = {1'000'000'000, 5};
        attrs.ctime = {1'000'000'001, 6};
        return attrs;
    }
    std::optional<error> begin(const char* name, const storage::request& r)
    {
        called = name;
        who = r.who;
        client = r.client;
        if (meanwhile)
            meanwhile();
        return fail;
    }
    node* find(const storage::handle& file)
    {
        std::uint64_t id = 0;
        if (file.bytes().size() != handle_size)
            return nullptr;
        std::memcpy(&id, file.bytes().data(), sizeof id);
        const auto found = nodes_.find(id);
        return found == nodes_.end() ? nullptr : &found->second;
    }
    storage::change change_of(const storage::handle& file)
    {
        storage::change change;
        change.after = find(file)->attrs;
        if (give_before) {
            change.before = change.after;
            change.before->size = 4242;
        }
        return change;
    }
    result<storage::create_result> make(const char* name_of_call, const storage::request& r,
                                        const storage::handle& directory, std::string_view name,
                                        storage::file_type type, const storage::set_attributes& s)
    {
        set = s;
        if (const auto failure = begin(name_of_call, r))
            return *failure;
        node* parent = find(directory);
        if (parent->children.contains(name) && mode != storage::create_mode::unchecked)
            return error::from_errno(EEXIST);
        const std::uint64_t id = add(parent->attrs.fileid, name, type, s.mode.value_or(0));
        storage::create_result done;
        done.made.handle = handle_of(id);
        done.made.attrs = nodes_[id].attrs;
        done.directory = change_of(directory);
        return done;
    }
    result<storage::change> unlink(const char* name_of_call, const storage::request& r,
                                   const storage::handle& directory, std::string_view name)
    {
        if (const auto failure = begin(name_of_call, r))
            return *failure;
        if (find(directory)->children.erase(std::string(name)) == 0)
            return error::from_errno(ENOENT);
        return change_of(directory);
    }

    std::map<std::uint64_t, node> nodes_;
    std::uint64_t last_id_ = root_id;
};

} // namespace verbena::test
