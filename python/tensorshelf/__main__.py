"""python -m tensorshelf"""

import sys

from tensorshelf._cli import main

sys.exit(main())
