// SPDX-License-Identifier: Apache-2.0
// Snapshots that clients take of the files of a simulation: what was in one when it was taken is in it for ever.
#pragma once

#include "luck.hpp"
#include "seeds.hpp"

#include <verbena/protocols/nfs/client/v4/client.hpp>
#include <verbena/protocols/storage/file_backend.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <vector>

namespace verbena::sim {

/// All of it runs on one thread, on whichever simulated shard. `files` names what each has: "f0" and so on.
class pictures {
public:
    static constexpr std::size_t most = 3;
    struct picture {
        std::string name;
        std::vector<std::vector<std::byte>> contents;
        unsigned readers = 0; ///< then nobody ends it
    };

    pictures(storage::file_backend& beneath, nfs::v4::node root, std::size_t files)
        : beneath_(beneath), root_(std::move(root)), files_(files)
    {
    }
    /// By a client. What it has is what is found there at once, or nullptr where it was not taken.
    task<picture*> take(nfs::v4::client& by)
    {
        const std::string name = "s" + std::to_string(next_++);
        ++under_way_;
        auto place = co_await by.walk(root_.handle, ".snapshot", true);
        BOOST_TEST_REQUIRE(bool(place));
        auto made = co_await by.mkdir(place->handle, name, {});
        --under_way_;
        BOOST_TEST(bool(made),
                   "mkdir .snapshot/" << name << ": " << (made ? std::string() : made.error().message()));
        if (!made)
            co_return nullptr;
        picture p{name, {}, 0};
        for (std::size_t i = 0; i < files_; ++i) {
            auto content = co_await read(name, i);
            p.contents.push_back(std::move(content));
        }
        ++taken;
        co_return &all_.emplace_back(std::move(p));
    }
    bool may_take() const { return all_.size() + under_way_ < most; }
    /// Ends one that nobody reads, if there is one.
    task<void> end(nfs::v4::client& by, draws& luck)
    {
        picture* const p = draw(luck);
        if (p == nullptr || p->readers != 0)
            co_return;
        const std::string name = p->name;
        all_.remove_if([p](const picture& each) { return &each == p; });
        ++under_way_;
        auto place = co_await by.walk(root_.handle, ".snapshot", true);
        BOOST_TEST_REQUIRE(bool(place));
        auto gone = co_await by.remove(place->handle, name);
        --under_way_;
        BOOST_TEST(bool(gone),
                   "remove .snapshot/" << name << ": " << (gone ? std::string() : gone.error().message()));
    }
    /// Or nullptr.
    picture* draw(draws& luck)
    {
        if (all_.empty())
            return nullptr;
        return &*std::next(all_.begin(), std::ptrdiff_t(luck.below(all_.size())));
    }
    /// One file of one of them, as the file system has it.
    task<void> look(draws& luck)
    {
        picture* const p = draw(luck);
        if (p == nullptr)
            co_return;
        const std::size_t file = luck.below(files_);
        ++p->readers;
        const auto content = co_await read(p->name, file);
        --p->readers;
        BOOST_TEST(are_same(content, p->contents[file]),
                   "file " << file << " of the snapshot " << p->name << " has changed");
        ++looks;
    }
    static void compare(const picture& p, std::size_t file, std::size_t at, std::span<const std::byte> got)
    {
        const auto& wanted = p.contents[file];
        BOOST_TEST_REQUIRE(at + got.size() <= wanted.size());
        BOOST_TEST(are_same(got, std::span(wanted).subspan(at, got.size())),
                   "byte " << at << " and behind it of file " << file << " of the snapshot " << p.name);
    }
    nfs::v4::node root() const { return root_; }
    std::uint64_t taken = 0, looks = 0, read_by_clients = 0;

private:
    task<std::vector<std::byte>> read(std::string snapshot, std::size_t file)
    {
        storage::request by_root;
        by_root.who = storage::credential(0, 0);
        storage::handle at = beneath_.root();
        std::vector<std::string> path;
        path.emplace_back(".snapshot");
        path.push_back(snapshot);
        path.push_back("f" + std::to_string(file));
        for (const std::string& name : path) {
            auto looking = beneath_.lookup(by_root, at, name);
            auto found = co_await looking;
            BOOST_TEST_REQUIRE(bool(found), name << " is not there");
            at = found->found.handle;
        }
        auto asking = beneath_.getattr(by_root, at);
        const auto attrs = co_await asking;
        BOOST_TEST_REQUIRE(bool(attrs));
        std::vector<std::byte> content(static_cast<std::size_t>(attrs->size));
        auto reading = beneath_.read(by_root, at, 0, content);
        const auto got = co_await reading;
        BOOST_TEST_REQUIRE((got && got->count == content.size()));
        co_return std::move(content);
    }
    storage::file_backend& beneath_;
    const nfs::v4::node root_;
    const std::size_t files_;
    std::list<picture> all_;
    std::size_t under_way_ = 0;
    unsigned next_ = 0;
};

} // namespace verbena::sim
