// SPDX-License-Identifier: Apache-2.0
// A listener of verbs whose next() finds no memory now and then.
#pragma once

#include <verbena/core/verbs/verbs.hpp>

#include <memory>
#include <new>
#include <string>

namespace verbena::test {

class throwing_listener final : public verbs::listener {
public:
    explicit throwing_listener(verbs::listener& inner) noexcept : inner_(inner) {}
    task<result<std::unique_ptr<verbs::connect_request>>> next() override
    {
        if (throws != 0) {
            --throws;
            throw std::bad_alloc();
        }
        return inner_.next();
    }
    void close() noexcept override { inner_.close(); }
    std::string local_url() const override { return inner_.local_url(); }
    unsigned throws = 0; ///< calls that do

private:
    verbs::listener& inner_;
};

} // namespace verbena::test
