// A net of two towers.
#pragma once

#include <string>

namespace convnet::test {

inline const std::string kTowers =
    "[data]\ntype=data\ndataIdx=0\n"
    "[labels]\ntype=data\ndataIdx=1\n"
    "[left]\ntype=conv\ninputs=data\nchannels=3\nfilters=16\nfilterSize=5\npadding=2\n"
    "[right]\ntype=conv\ninputs=data\nchannels=3\nfilters=16\nfilterSize=5\npadding=2\n"
    "[left2]\ntype=conv\ninputs=left\nchannels=16\nfilters=16\nfilterSize=5\npadding=2\n"
    "[right2]\ntype=conv\ninputs=right\nchannels=16\nfilters=16\nfilterSize=5\npadding=2\n"
    "[both]\ntype=fc\ninputs=left2,right2\noutputs=10\n"
    "[probs]\ntype=softmax\ninputs=both\n"
    "[logprob]\ntype=cost.logreg\ninputs=labels,probs\n";

inline const std::string kTowersParameters =
    "[left]\nepsW=0.01\nepsB=0.01\nmomW=0.9\nmomB=0.9\n[right]\nepsW=0.01\nepsB=0.01\nmomW=0.9\nmomB=0.9\n["
    "left2]\nepsW=0.01\nepsB=0.01\nmomW=0.9\nmomB=0.9\n"
    "[right2]\nepsW=0.01\nepsB=0.01\nmomW=0.9\nmomB=0.9\n[both]\nepsW=0.01\nepsB=0.01\nmomW=0.9\nmomB=0.9\n["
    "logprob]\ncoeff=1\n";

}  // namespace convnet::test
