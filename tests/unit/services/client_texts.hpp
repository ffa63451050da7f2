// SPDX-License-Identifier: Apache-2.0
// Files in memory, for tests of what `verbena cp` does.
#pragma once

#include <boost/test/unit_test.hpp>

#include <client/copy.hpp>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace verbena::test {

inline const error not_here(std::errc::function_not_supported, "not of this test");

class text_file final : public cli::open_file {
public:
    text_file(buffer_pool& pool, std::string& text, std::uint64_t room = UINT64_MAX)
        : pool_(pool), text_(text), opened_(text.size()), room_(room)
    {
    }

    task<result<rpc::payload>> read(std::uint64_t offset, std::uint32_t count) override
    {
        const std::string_view part = std::string_view(text_).substr(std::min(offset, text_.size()), count);
        verbena::lease block =
            co_await pool_.acquire(std::max<std::size_t>(part.size(), buffer_pool::min_size));
        std::memcpy(block.data(), part.data(), part.size());
        const std::span<const std::byte> bytes(block.data(), part.size());
        co_return part.empty() ? rpc::payload() : rpc::payload(std::move(block), bytes);
    }
    task<result<void>> write(std::uint64_t offset, rpc::payload data) override
    {
        if (offset + data.size() > room_)
            co_return error(std::errc::no_space_on_device, "write");
        put(
            offset,
            [&](char* to) {
                for (const auto piece : data.pieces()) {
                    std::memcpy(to, piece.data(), piece.size());
                    to += piece.size();
                }
            },
            data.size());
        co_return result<void>();
    }
    task<result<void>> cut(std::uint64_t length) override
    {
        if (opened_ > length)
            text_.resize(length);
        co_return result<void>();
    }
    task<result<void>> take_back(std::uint64_t end) override
    {
        taken_back = end;
        co_return result<void>();
    }
    task<result<void>> close() override { co_return result<void>(); }
    void put_text(std::string_view words)
    {
        put(0, [&](char* to) { std::memcpy(to, words.data(), words.size()); }, words.size());
    }

    inline static std::uint64_t taken_back = UINT64_MAX; // to where, the last one

private:
    template<class F>
    void put(std::uint64_t offset, const F& fill, std::size_t size)
    {
        text_.resize(std::max<std::size_t>(text_.size(), offset + size));
        fill(text_.data() + offset);
        opened_ = std::max<std::uint64_t>(opened_, text_.size());
    }
    buffer_pool& pool_;
    std::string& text_;
    std::uint64_t opened_; // the size that it may have
    const std::uint64_t room_;
};

// One server's files; what it copies by itself is up to `copies`.
class text_store final : public cli::store {
public:
    explicit text_store(buffer_pool& pool) : pool_(pool) {}

    task<result<cli::file_info>> stat(std::string path, bool) override
    {
        const auto found = files.find(path);
        if (found == files.end())
            co_return error(std::errc::no_such_file_or_directory, "stat");
        cli::file_info info;
        info.kind = cli::file_kind::regular;
        info.size = found->second.size();
        info.id = 1 + static_cast<std::uint64_t>(std::distance(files.begin(), found));
        co_return info;
    }
    task<result<std::unique_ptr<cli::open_file>>> open(std::string path) override
    {
        co_return std::unique_ptr<cli::open_file>(std::make_unique<text_file>(pool_, files[path]));
    }
    task<result<std::unique_ptr<cli::open_file>>> create(std::string path, std::uint32_t) override
    {
        co_return std::unique_ptr<cli::open_file>(std::make_unique<text_file>(pool_, files[path], room));
    }
    task<result<std::uint64_t>> copy_within(cli::store&, cli::open_file&, cli::open_file& to, std::uint64_t,
                                            std::function<void(std::uint64_t)> progress) override
    {
        ++asked;
        static_cast<text_file&>(to).put_text(copied);
        progress(copied.size());
        co_return outcome;
    }
    task<result<std::vector<std::string>>> list(std::string) override { co_return not_here; }
    task<result<std::string>> read_link(std::string) override { co_return not_here; }
    task<result<void>> make_directory(std::string, std::uint32_t) override { co_return not_here; }
    task<result<void>> make_link(std::string, std::string) override { co_return not_here; }
    task<result<void>> set_mode_and_times(std::string, const cli::file_info&) override { co_return not_here; }
    std::uint32_t transfer_size() const noexcept override { return 10'000; }
    std::string place() const override { return "there"; }
    std::string server() const override { return "there"; }
    std::string name_of(const std::string& path) const override { return path; }

    std::map<std::string, std::string> files;
    std::string copied; // what lies at the target's beginning afterwards
    result<std::uint64_t> outcome = std::uint64_t(0);
    int asked = 0;
    std::uint64_t room = UINT64_MAX; // for a file that is created

private:
    buffer_pool& pool_;
};

} // namespace verbena::test
