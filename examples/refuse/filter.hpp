// SPDX-License-Identifier: Apache-2.0
// The filter of the example refuse. It stands in a header, so that module.cpp and test.cpp both have it.
#pragma once

#include <verbena/protocols/storage/forwarding_backend.hpp>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <fnmatch.h>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace refuse {

using namespace verbena;
using namespace verbena::storage;

// Nothing gets a name that matches a pattern of the shell: the calls below give names. What has such a name already
// keeps it, and bytes pass untouched.
class filter final : public forwarding_backend {
public:
    filter(std::unique_ptr<file_backend> below, std::string pattern)
        : forwarding_backend(std::move(below), filter_bytes::are_those_below), pattern_(std::move(pattern))
    {
    }
    const std::atomic<std::uint64_t>& refused() const noexcept { return refused_; }

    task<result<create_result>> create(const request& r, const handle& directory, std::string_view name,
                                       create_mode mode, const set_attributes& set,
                                       std::uint64_t verifier) override
    {
        if (matches(name))
            return refusal<create_result>();
        return forwarding_backend::create(r, directory, name, mode, set, verifier);
    }
    task<result<create_result>> mkdir(const request& r, const handle& directory, std::string_view name,
                                      const set_attributes& set) override
    {
        return matches(name) ? refusal<create_result>() : forwarding_backend::mkdir(r, directory, name, set);
    }
    task<result<create_result>> symlink(const request& r, const handle& directory, std::string_view name,
                                        std::string_view target, const set_attributes& set) override
    {
        if (matches(name))
            return refusal<create_result>();
        return forwarding_backend::symlink(r, directory, name, target, set);
    }
    task<result<create_result>> mknod(const request& r, const handle& directory, std::string_view name,
                                      file_type type, std::uint32_t major, std::uint32_t minor,
                                      const set_attributes& set) override
    {
        if (matches(name))
            return refusal<create_result>();
        return forwarding_backend::mknod(r, directory, name, type, major, minor, set);
    }
    task<result<rename_result>> rename(const request& r, const handle& from_directory, std::string_view from,
                                       const handle& to_directory, std::string_view to) override
    {
        if (matches(to))
            return refusal<rename_result>();
        return forwarding_backend::rename(r, from_directory, from, to_directory, to);
    }
    // Asked before others have to give up what they have of the file. rename() counts.
    task<result<void>> may_rename(const request& r, const handle& from_directory, std::string_view from,
                                  const handle& to_directory, std::string_view to) override
    {
        if (matches(to))
            return answered<void>(refusal_of_names());
        return forwarding_backend::may_rename(r, from_directory, from, to_directory, to);
    }
    task<result<link_result>> link(const request& r, const handle& file, const handle& directory,
                                   std::string_view name) override
    {
        return matches(name) ? refusal<link_result>() : forwarding_backend::link(r, file, directory, name);
    }

private:
    bool matches(std::string_view name) const
    {
        return ::fnmatch(pattern_.c_str(), std::string(name).c_str(), 0) == 0;
    }
    static error refusal_of_names() noexcept
    {
        return error::from_errno(EACCES, "a name that the filter refuses");
    }
    template<class T>
    static task<result<T>> answered(error e)
    {
        co_return e;
    }
    template<class T>
    task<result<T>> refusal()
    {
        refused_.fetch_add(1, std::memory_order_relaxed);
        return answered<T>(refusal_of_names());
    }

    const std::string pattern_;
    std::atomic<std::uint64_t> refused_{0}; // by all shards, which call at once
};

} // namespace refuse
