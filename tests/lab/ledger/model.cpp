// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>

namespace verbena::ledger {
namespace {

using nfs::v3::ftype3;

constexpr std::size_t max_objects = 40;
constexpr std::size_t small = 3000;
constexpr auto everything = {ftype3::reg, ftype3::dir, ftype3::lnk, ftype3::fifo, ftype3::chr};
constexpr auto all_but_directories = {ftype3::reg, ftype3::lnk, ftype3::fifo, ftype3::chr};

std::uint64_t below(numbers& random, std::uint64_t limit)
{
    return std::uniform_int_distribution<std::uint64_t>(0, limit - 1)(random);
}

std::string bytes(numbers& random, std::size_t size)
{
    std::string out(size, '\0');
    for (std::size_t at = 0; at < size; at += sizeof(std::uint64_t)) {
        const std::uint64_t eight = random();
        std::memcpy(out.data() + at, &eight, std::min(sizeof eight, size - at));
    }
    return out;
}

bool writes(kind k) noexcept
{
    return k == kind::write_file_sync || k == kind::write_data_sync || k == kind::write_and_commit;
}

bool sets_attributes(kind k) noexcept { return k >= kind::chmod && k <= kind::set_atime; }

ftype3 type_made_by(kind k) noexcept
{
    switch (k) {
    case kind::mkdir: return ftype3::dir;
    case kind::symlink: return ftype3::lnk;
    case kind::make_fifo: return ftype3::fifo;
    case kind::make_device: return ftype3::chr;
    default: return ftype3::reg;
    }
}

} // namespace

const char* to_string(kind k) noexcept
{
    static constexpr std::array<const char*, kinds> names = {"CREATE",
                                                             "CREATE EXCLUSIVE",
                                                             "MKDIR",
                                                             "SYMLINK",
                                                             "MKNOD FIFO",
                                                             "MKNOD device",
                                                             "LINK",
                                                             "RENAME",
                                                             "RENAME directory",
                                                             "REMOVE",
                                                             "RMDIR",
                                                             "SETATTR mode",
                                                             "SETATTR owner",
                                                             "SETATTR size",
                                                             "SETATTR mtime",
                                                             "SETATTR atime",
                                                             "WRITE FILE_SYNC",
                                                             "WRITE DATA_SYNC",
                                                             "WRITE and COMMIT",
                                                             "READ"};
    return names[static_cast<std::size_t>(k)];
}

std::string operation::description() const
{
    std::string text = std::string(to_string(what)) + " \"" + path + '"';
    if (!to.empty())
        text += " to \"" + to + '"';
    for (const piece& p : pieces)
        text += ' ' + std::to_string(p.offset) + '+' + std::to_string(p.data.size());
    if (what == kind::read)
        text += ' ' + std::to_string(offset) + '+' + std::to_string(number);
    return text;
}

std::pair<std::string, std::string> split(const std::string& path)
{
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos)
        return {"", path};
    return {path.substr(0, slash), path.substr(slash + 1)};
}

model::model(const sizes& s) : sizes_(s)
{
    auto root = std::make_shared<object>();
    root->type = ftype3::dir;
    root->mode = 0755;
    names_.emplace("", std::move(root));
}

model::model(const model& other) : sizes_(other.sizes_)
{
    std::map<const object*, std::shared_ptr<object>> copies;
    for (const auto& [name, o] : other.names_) {
        std::shared_ptr<object>& copy = copies[o.get()];
        if (!copy)
            copy = std::make_shared<object>(*o);
        names_.emplace(name, copy);
    }
}

unsigned model::links_of(const object& o) const
{
    return static_cast<unsigned>(
        std::ranges::count_if(names_, [&o](const auto& name) { return name.second.get() == &o; }));
}

std::vector<std::string> model::list(const std::string& path) const
{
    std::vector<std::string> out;
    for (const auto& [name, o] : names_) {
        auto [parent, last] = split(name);
        if (!name.empty() && parent == path)
            out.push_back(std::move(last));
    }
    return out;
}

std::string model::any_of(numbers& random, std::initializer_list<ftype3> types) const
{
    std::vector<const std::string*> found;
    for (const auto& [name, o] : names_) {
        if (std::ranges::find(types, o->type) != types.end() && !name.empty())
            found.push_back(&name);
    }
    return found.empty() ? std::string() : *found[below(random, found.size())];
}

std::string model::new_name(numbers& random) const
{
    std::string parent = below(random, 2) == 0 ? std::string() : any_of(random, {ftype3::dir});
    // Not ever deeper: paths stay short.
    if (std::ranges::count(parent, '/') > 2)
        parent.clear();
    for (;;) {
        std::string name = parent.empty() ? "" : parent + '/';
        name += 'n' + std::to_string(below(random, 1'000'000));
        if (!names_.contains(name))
            return name;
    }
}

std::size_t model::some_size(numbers& random) const
{
    return 1 + below(random, below(random, 3) == 0 ? sizes_.most : small);
}

operation model::choose(numbers& random) const
{
    operation o;
    o.what = static_cast<kind>(below(random, kinds));
    if (names_.size() > max_objects && o.what <= kind::link)
        o.what = below(random, 3) == 0 ? kind::rmdir : kind::remove;
    const std::string file = any_of(random, {ftype3::reg});
    if (file.empty() && o.what >= kind::link)
        o.what = kind::create;

    o.path = file;
    switch (o.what) {
    case kind::create_exclusive: {
        o.path = new_name(random);
        const std::uint64_t verifier = random();
        std::memcpy(o.verifier.data(), &verifier, sizeof verifier);
        break;
    }
    case kind::make_device:
        // As many bits as Linux has.
        o.device.specdata1 = static_cast<std::uint32_t>(below(random, 1 << 12));
        o.device.specdata2 = static_cast<std::uint32_t>(below(random, 1 << 20));
        [[fallthrough]];
    case kind::create:
    case kind::mkdir:
    case kind::make_fifo:
        o.path = new_name(random);
        // The caller must be able to go on working in it.
        o.number = 0700 | static_cast<std::uint32_t>(below(random, 0100));
        break;
    case kind::symlink:
        o.path = new_name(random);
        o.target = std::string(1 + below(random, 200), 't') + std::to_string(below(random, 1000));
        break;
    case kind::link: o.to = new_name(random); break;
    case kind::rename:
        // A file to a new name or over another one; a directory to a new name that is not inside it.
        if (const std::string directory = any_of(random, {ftype3::dir});
            !directory.empty() && below(random, 3) == 0) {
            o.path = directory;
            do
                o.to = new_name(random);
            while (o.to.starts_with(directory + '/'));
        } else {
            o.to = below(random, 2) == 0 ? new_name(random) : any_of(random, {ftype3::reg});
            // Two names of one file: RENAME does nothing (RFC 1813 3.3.14).
            if (names_.contains(o.to) && names_.at(o.to) == names_.at(o.path))
                o.to = new_name(random);
        }
        break;
    case kind::rename_over: {
        std::vector<std::pair<std::string, std::string>> pairs;
        for (const auto& [from, moved] : names_) {
            for (const auto& [to, replaced] : names_) {
                if (!from.empty() && moved->type == ftype3::dir && !to.empty() &&
                    replaced->type == ftype3::dir && from != to && !to.starts_with(from + '/') &&
                    is_empty(to))
                    pairs.emplace_back(from, to);
            }
        }
        if (!pairs.empty()) {
            std::tie(o.path, o.to) = pairs[below(random, pairs.size())];
            break;
        }
        o.what = kind::mkdir;
        o.path = new_name(random);
        o.number = 0700;
        break;
    }
    case kind::rmdir:
        if (const std::string directory = any_of(random, {ftype3::dir});
            !directory.empty() && is_empty(directory)) {
            o.path = directory;
            break;
        }
        o.what = kind::remove;
        [[fallthrough]];
    case kind::remove: o.path = any_of(random, all_but_directories); break;
    case kind::chmod: o.number = 0600 | static_cast<std::uint32_t>(below(random, 0200)); break;
    case kind::chown:
        o.path = any_of(random, everything);
        o.number = static_cast<std::uint32_t>(1 + below(random, 60'000));
        o.group = static_cast<std::uint32_t>(1 + below(random, 60'000));
        break;
    case kind::truncate: o.number = static_cast<std::uint32_t>(below(random, sizes_.file)); break;
    case kind::set_mtime:
        o.number = static_cast<std::uint32_t>(1'000'000'000 + below(random, 500'000'000));
        break;
    case kind::set_atime:
        o.path = any_of(random, everything);
        // After the present: to a comparison, which reads, a file system with relatime answers by a new time otherwise.
        o.number = static_cast<std::uint32_t>(3'000'000'000 + below(random, 1'000'000'000));
        break;
    case kind::write_file_sync:
    case kind::write_data_sync:
    case kind::write_and_commit:
        for (std::uint64_t n = o.what == kind::write_and_commit ? 1 + below(random, 4) : 1; n != 0; --n) {
            const std::size_t size = some_size(random);
            o.pieces.push_back({below(random, sizes_.file - size), bytes(random, size)});
        }
        break;
    case kind::read:
        // Beyond the end now and then.
        o.number = static_cast<std::uint32_t>(some_size(random));
        o.offset = below(random, at(file).data.size() + 1000);
        break;
    }
    return o;
}

void model::apply(const operation& o)
{
    if (writes(o.what)) {
        object& file = at(o.path);
        for (const piece& p : o.pieces) {
            file.data.resize(std::max<std::size_t>(file.data.size(), p.offset + p.data.size()), '\0');
            file.data.replace(p.offset, p.data.size(), p.data);
        }
        file.mtime.reset();
        file.verifier.reset();
        return;
    }
    if (sets_attributes(o.what))
        at(o.path).verifier.reset();
    switch (o.what) {
    case kind::create:
    case kind::create_exclusive:
    case kind::mkdir:
    case kind::symlink:
    case kind::make_fifo:
    case kind::make_device: {
        auto made = std::make_shared<object>();
        made->type = type_made_by(o.what);
        if (o.what == kind::create_exclusive)
            made->verifier = o.verifier;
        else if (o.what != kind::symlink)
            made->mode = o.number;
        made->data = o.target;
        made->device = o.device;
        names_.emplace(o.path, std::move(made));
        break;
    }
    case kind::link: names_.emplace(o.to, names_.at(o.path)); break;
    case kind::rename:
    case kind::rename_over: {
        std::map<std::string, std::shared_ptr<object>> moved;
        for (auto at = names_.begin(); at != names_.end();) {
            const bool inside = at->first == o.path || at->first.starts_with(o.path + '/');
            if (inside)
                moved.emplace(o.to + at->first.substr(o.path.size()), at->second);
            at = inside ? names_.erase(at) : std::next(at);
        }
        for (auto& [name, what] : moved)
            names_.insert_or_assign(name, std::move(what));
        break;
    }
    case kind::remove:
    case kind::rmdir: names_.erase(o.path); break;
    case kind::chmod: at(o.path).mode = o.number; break;
    case kind::chown: at(o.path).owner.emplace(o.number, o.group); break;
    case kind::truncate:
        at(o.path).data.resize(o.number, '\0');
        at(o.path).mtime.reset();
        at(o.path).zeroed = {};
        break;
    case kind::set_mtime: at(o.path).mtime = o.number; break;
    case kind::set_atime: at(o.path).atime = o.number; break;
    default: break;
    }
}

void model::begin(const operation& o)
{
    if (o.what == kind::read)
        at(o.path).verifier.reset(); // servers keep it in the times, and a READ may change one
    // ext4 zeroes the rest of the last block that stays, and with ordered data those zeros are on the disk before the
    // transaction that has the new size.
    constexpr std::uint64_t largest_block = 4096;
    if (o.what == kind::truncate)
        at(o.path).zeroed = {o.number, (o.number + largest_block - 1) / largest_block * largest_block};
    if (!writes(o.what))
        return;
    object& file = at(o.path);
    file.mtime.reset();
    file.verifier.reset();
    for (const piece& p : o.pieces)
        file.unsure.emplace_back(p.offset, p.offset + p.data.size());
}

} // namespace verbena::ledger
